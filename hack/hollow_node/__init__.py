"""A hollow node: simulates scheduler and kubelets, so that pods live and end on an API server that has no nodes.

It runs nothing. It binds pods to its Node objects, gives them addresses, reports the statuses that a kubelet would, and serves
logs; what each run of a container does is told by annotations of the pod (without any: it runs 2 s and exits with 0):

    hollow.tfjob.kubeflow.org/run: "1s:137, 2s:0"        the first container: first run, second run and all after it
    hollow.tfjob.kubeflow.org/run.<container>: "5s:0"    another container, an init container too
    hollow.tfjob.kubeflow.org/log: "keras 10 every 2s"   what the first container prints
    hollow.tfjob.kubeflow.org/on-stop: "ignore"          what SIGTERM does; default 0s:143

A run is SECONDS`s:`OUTCOME, where the outcome is an exit code, `oom-killed`, `evicted`, `node-shutdown` or `node-lost`; or one
of `forever`, `never-start`, `start-error`, `image-pull-back-off`, `waiting:REASON`, `rejected`, `rejected:REASON`. README.md
beside this file says what each of them looks like.

    async with HollowNode(client, watch_client=other_client):
        ...

or `python -m hack.hollow_node --kubeconfig FILE`. It behaves as the kubelet of any version from 1.20 to 1.36 (`kubernetes=`,
`--kubernetes`), by default the newest.
"""

from __future__ import annotations

from hack.hollow_node.node import HollowNode
from hack.hollow_node.script import Timing

__all__ = ["HollowNode", "Timing"]
