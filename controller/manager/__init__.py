"""What runs any controller: workers that take keys from a queue, and a manager that starts and stops all parts in order.

    informers = SharedInformerFactory(client)
    kettles = informers.informer(Codec(KETTLES, Kettle))

    async def sync(key: str) -> None:          # raises ApiError when it must be tried again
        ...

    controller = Controller("kettle", sync)
    kettles.add_event_handler(...)             # puts keys into controller.queue
    await Manager(informers, controller, stop=stop).run()

With an elector one replica works at a time; with a `PageServer` there are metrics and probes.
"""

from __future__ import annotations

from tfjob_operator.controller.manager.controller import Controller, RequeueError
from tfjob_operator.controller.manager.manager import Manager

__all__ = ["Controller", "Manager", "RequeueError"]
