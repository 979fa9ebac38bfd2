"""A real Kubernetes control plane on this machine, for tests and demos: etcd, kube-apiserver, kube-controller-manager.

Two floors. `build` finds or makes the programs: `binaries`, then `debian_build` over `apt`, `go_build` and `commands`. `run`,
on top of it: `plane` (the library's face), `launch` (the owner's end of a keeper), `keeper` (the process that keeps it),
`stack` (start and readiness of the parts), `parts` (their command lines), `processes`, `folders`, `state`, `pki`, `kubeconfig`,
`probes`, `ports`. `__main__` is the command line's face; `errors` and `progress` are everybody's.
"""

from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.run.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
