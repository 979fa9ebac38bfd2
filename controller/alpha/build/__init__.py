"""What children of jobs in the alpha dialect look like: the bodies that are sent to the API server. Pure.

`batch_job`, `service` and `config_map` make them; `labels` makes the labels of all; `cluster` is what replicas are told about
each other; `server_script` is the program of parameter servers that have no container of their own.
"""
