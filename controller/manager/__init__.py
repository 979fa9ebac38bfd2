"""Runs controllers: workers that process keys from a queue, and a manager that starts and stops all components in order.

    informers = SharedInformerFactory(client)
    kettles = informers.informer(Codec(KETTLES, Kettle))

    async def sync(key: str) -> None:                    # raises ApiError to be retried
        ...

    controller = Controller("kettle", sync)
    controller.watch(kettles, lambda kettle: meta_key(kettle.metadata))
    await Manager(informers, controller, stop=stop_on_signals()).run()

With an elector, only one replica is active at a time; a `PageServer` serves metrics and probes.
"""

from __future__ import annotations

from tfjob_operator.controller.manager.controller import (
    Controller,
    Predicate,
    RequeueError,
    Result,
    TerminalError,
    all_of,
    any_of,
    generation_changed,
    has_labels,
    labels_changed,
    none_of,
)
from tfjob_operator.controller.manager.manager import Manager, stop_on_signals

__all__ = [
    "Controller",
    "Manager",
    "Predicate",
    "RequeueError",
    "Result",
    "TerminalError",
    "all_of",
    "any_of",
    "generation_changed",
    "has_labels",
    "labels_changed",
    "none_of",
    "stop_on_signals",
]
