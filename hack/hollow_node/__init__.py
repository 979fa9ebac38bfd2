"""A hollow node: simulates scheduler and kubelets, so that pods live and end on an API server that has no nodes.

It runs nothing. It binds pods to its Node objects, gives them addresses, reports the statuses that a kubelet would, and serves
logs; annotations of the pod define what each run of a container does (README.md). `python -m hack.hollow_node` runs one, which
behaves as the kubelet of any version from 1.20 to 1.36.
"""
