"""The event recorder under faults: a recorded event is on the server, or counted as dropped, and never there twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Final

from fakes.metrics import Drops
from simulation.world import World, require
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.controller.events import EventRecorder

OBJECTS: Final = 4
BURSTS: Final = 8
OUTAGE_S: Final = 130.0
"""Twelve tries ten seconds apart (EV-08): after this time an event is either written or dropped."""

Group = tuple[str, str, str]
"""The key of events that the correlator may merge: object, type, reason."""


async def no_event_is_lost_silently(world: World) -> None:
    """Bursts of events about a few objects; in the end the counts of written and dropped events must add up."""
    random = world.random
    await world.create_namespaces("ns")
    drops = Drops()
    recorder = EventRecorder(
        world.client("recorder", world.faulty("recorder")),
        component="simulated",
        clock=world.clock,
        metrics=drops,
        random=world.product_random,
    )
    running = asyncio.create_task(recorder.run(), name="recorder")
    recorded: Counter[Group] = Counter()
    for _ in range(BURSTS):
        _record_burst(recorder, random, recorded)
        await asyncio.sleep(random.expovariate(BURSTS / world.calm_at))
    if random.random() < 0.3:
        running.cancel()  # an operator that is stopped without notice
    elif random.random() < 0.5:
        recorder.stop()
    else:
        await asyncio.sleep(max(0.0, world.calm_at - world.time) + OUTAGE_S)
        _record_burst(recorder, random, recorded)  # in calm weather
        await asyncio.sleep(OUTAGE_S)
        recorder.stop()
    await asyncio.wait([running])
    _check_books(world, recorded, drops)


def _record_burst(recorder: EventRecorder, random: Random, recorded: Counter[Group]) -> None:
    number = random.randrange(OBJECTS)
    regarding = ObjectReference(kind="Pod", namespace="ns", name=f"object-{number}", uid=f"uid-{number}")
    for _ in range(random.choice((1, 2, 15))):
        event_type = random.choice((EventType.NORMAL, EventType.WARNING))
        reason = random.choice(("Created", "Failed"))
        message = f"replica {random.randrange(random.choice((1, 30)))}"
        recorder.event(regarding, event_type, reason, message)
        recorded[regarding.name, event_type, reason] += 1


def _check_books(world: World, recorded: Counter[Group], drops: Drops) -> None:
    written: Counter[Group] = Counter()
    for version in world.server.storage.collections["events"].objects.values():
        body = version.body
        written[body["involvedObject"]["name"], body["type"], body["reason"]] += body["count"]
    world.note(
        "recorded", sorted(recorded.items()), "written", sorted(written.items()), "dropped", sorted(drops.count.items())
    )
    for group in sorted(recorded | written):
        require(written[group] <= recorded[group], f"{group}: {written[group]} written, {recorded[group]} recorded")
    for event_type in (EventType.NORMAL, EventType.WARNING):
        there, said = (sum(n for (_, kind, _), n in book.items() if kind == event_type) for book in (written, recorded))
        lost = said - there - sum(n for (kind, _), n in drops.count.items() if kind == event_type)
        require(lost <= 0, f"{lost} {event_type} events are neither on the server nor counted as dropped")
