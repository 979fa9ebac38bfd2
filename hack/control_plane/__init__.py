"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, kube-controller-manager.

It has two layers. `build` finds or makes the programs: `binaries` over `apt` and `commands`. `run`, on top of it: `plane` (what
Python code uses; starts a keeper and talks to it), `keeper` (the process that runs a control plane), `stack` (start and
readiness of the parts), `parts` (their command lines and ports), `folders` (with state and kubeconfigs) and `pki`.
`__main__` is the command line.
"""

from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
