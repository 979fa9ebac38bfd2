"""What children of a TFJob look like: the bodies that are sent to the API server. Pure, and knows nothing of `decide`.

One module for each kind: `pod`, `service`, `config_map`, `pod_group`. What several have is in `labels`, `references` and
`gang_scheduler`; what has to be reckoned in `tf_config`, `requests` and `quantities`.
"""
