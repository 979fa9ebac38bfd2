"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, kube-controller-manager.

Reading order: `plane` (the library's face) and `__main__` (the command line's), `launch` (the owner's end of a keeper),
`keeper` (the process that keeps one instance), `stack` (start and readiness of the parts), `parts` (their command lines),
`processes`, `folders`, `state`, `pki`, `kubeconfig`, `probes`, `ports`. Where the programs come from: `binaries`, then
`debian_build` over `apt`, `go_build` and `commands`.
"""

from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
