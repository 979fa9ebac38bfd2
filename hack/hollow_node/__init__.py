"""A hollow node simulates scheduler and kubelets, so pods run and end on an API server without nodes.

It runs no programs. It binds pods to its Node objects, assigns addresses, reports the statuses that a kubelet would, and serves
logs. Annotations of a pod define each run of a container (README.md). `python -m hack.hollow_node` runs a hollow node, which
can behave like the kubelet of any version from 1.20 to 1.36.
"""
