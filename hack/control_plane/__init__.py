"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, kube-controller-manager.

It has two layers. `build` finds or makes the programs: `binaries`, then `debian_build` over `apt`, `go_build` and `commands`.
`run`, on top of it: `plane` (what Python code uses), `launch` (starts a keeper and talks to it), `keeper` (the process that
runs a control plane), `stack` (start and readiness of the parts), `parts` (their command lines), `processes`, `folders`,
`state`, `pki`, `kubeconfig`, `probes`, `ports`. `__main__` is the command line; both layers use `errors` and `progress`.
"""

from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.run.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
