"""What runs any controller: workers that take keys from a queue, and a manager that starts and stops all parts in order.

    informers = SharedInformerFactory(client)
    kettles = informers.informer(Codec(KETTLES, Kettle))

    async def sync(key: str) -> None:          # raises ApiError when it must be tried again
        ...

    controller = Controller("kettle", sync)
    controller.watch(kettles, lambda kettle: meta_key(kettle.metadata))
    await Manager(informers, controller, stop=stop_on_signals()).run()

With an elector one replica works at a time; with a `PageServer` there are metrics and probes.
"""

from __future__ import annotations

from tfjob_operator.controller.manager.controller import Controller, RequeueError, Result, TerminalError
from tfjob_operator.controller.manager.manager import Manager, stop_on_signals

__all__ = ["Controller", "Manager", "RequeueError", "Result", "TerminalError", "stop_on_signals"]
