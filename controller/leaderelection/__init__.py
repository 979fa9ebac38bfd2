"""Leader election with Leases: one replica of a controller is active, and the others are ready to take over.

    fence = Fence(LeaseClock())
    client = RestClient(FencedTransport(transport, fence))   # for the writes of the work

    async def lead() -> None:          # cancelled when the lease is lost; when it returns, the lease is released
        await controller.run()

    elector = LeaderElector(
        LeaseLock(RestClient(lease_transport), "kube-system", "kettle-operator", identity=hostname_uuid()),
        fence=fence,
    )
    await elector.run(lead)            # raises LeadershipLostError: exit and restart

Guarantees beyond client-go's elector: writes of two leaders do not overlap, even if a leader was frozen (`Fence`); the work has
ended when `run` returns; the lease is released only after the work has ended. Coordinated election is not implemented:
it is alpha, and not available on 1.20. The only third-party imports are structlog and msgspec.
"""

from __future__ import annotations

from tfjob_operator.controller.leaderelection.config import Election, LeaderElectionConfig, hostname_uuid
from tfjob_operator.controller.leaderelection.elector import LeaderElector, LeaderHealth, LeadershipLostError
from tfjob_operator.controller.leaderelection.fence import Fence, FencedError, FencedTransport, GatedTransport
from tfjob_operator.controller.leaderelection.lease import LeaderElectionRecord, LeaseLock, LeaseWatch, ResourceLock

__all__ = [
    "Election",
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
