"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, kube-controller-manager.

It has two layers. `build` finds or makes the programs: `binaries` over `apt` and `commands`. `run`, on top of it: `plane` (for
Python code: starts the parts and talks to them), `part` (one process), `parts` (their command lines and ports), `folders` (with
kubeconfigs) and `pki`. `__main__` is the command line.
"""

from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
