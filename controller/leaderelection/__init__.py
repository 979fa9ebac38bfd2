"""Leader election on Leases: one replica of a controller works, and the others wait to take over.

    fence = Fence(LeaseClock())
    client = RestClient(FencedTransport(transport, fence))   # what the work writes with

    async def lead() -> None:          # cancelled when the lease is lost; when it returns, the lease is given back
        await controller.run()

    elector = LeaderElector(
        LeaseLock(RestClient(lease_transport), "kube-system", "kettle-operator", identity=hostname_uuid()),
        fence=fence,
    )
    await elector.run(lead)            # raises LeadershipLostError: exit, and start anew

What it promises beyond client-go's elector: writes of two leaders do not overlap, also when a leader was frozen (`Fence`);
the work has ended when `run` returns; the lease is given back only then. Coordinated election (LE-15) is left out: it is
alpha, and a server of 1.20 does not know it. Of third parties this package imports structlog and msgspec only.
"""

from __future__ import annotations

from tfjob_operator.controller.leaderelection.config import LeaderElectionConfig, hostname_uuid
from tfjob_operator.controller.leaderelection.elector import LeaderElector, LeaderHealth, LeadershipLostError
from tfjob_operator.controller.leaderelection.fence import Fence, FencedError, FencedTransport, GatedTransport
from tfjob_operator.controller.leaderelection.lease import LeaderElectionRecord, LeaseLock, LeaseWatch, ResourceLock

__all__ = [
    "Fence",
    "FencedError",
    "FencedTransport",
    "GatedTransport",
    "LeaderElectionConfig",
    "LeaderElectionRecord",
    "LeaderElector",
    "LeaderHealth",
    "LeadershipLostError",
    "LeaseLock",
    "LeaseWatch",
    "ResourceLock",
    "hostname_uuid",
]
