"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, kube-controller-manager.

`build` finds or builds the programs (`binaries`, based on `apt` and `commands`). `run` starts them: `plane` (the interface
for Python code), `part` (one process), `parts` (command lines and ports), `folders` (with kubeconfigs) and `pki`. `__main__`
is the command line.
"""

from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
