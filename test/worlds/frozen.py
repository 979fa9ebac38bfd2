"""Freeze an operator's memory into a hashable value, and thaw it into new objects: so one memory can live many futures.

Generic on purpose: whatever objects the controller comes to hold, all their fields are in the frozen value, and nobody has to
remember to add a new one here. What is special is listed: surroundings (clients, clocks) are shared, times are relative to now
and rounded to what can matter, and versions of the job stand apart, since their numbers mean nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections import OrderedDict, deque
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

import msgspec

from api.v1.types import TFJob
from worlds.values import LONG_S, Rv
from workqueue.delaying import DelayingQueue

_PLAIN: Final = (type(None), bool, int, bytes, enum.Enum, type, FunctionType, BuiltinFunctionType)
_RV: Final = "rv"


class Freezer:
    """Freezes and thaws graphs of objects around the same `surroundings`, which are kept as they are."""

    def __init__(self, surroundings: tuple[type, ...]) -> None:
        self._surroundings = surroundings
        self._values: dict[int, int] = {}  # id of an immutable object -> its number; the object lives on in `_kept`
        self._numbers: dict[tuple[type, bytes], int] = {}
        self._kept: list[Any] = []
        self._jobs: dict[tuple[int, Rv], TFJob] = {}
        self._fields: dict[type, tuple[str, ...]] = {}

    def freeze(self, root: Any, now: float) -> tuple[Any, tuple[Rv, ...]]:
        """The graph below `root` as a hashable value, and the versions of the job in it."""
        run = _Freezing(self, now)
        return run.freeze(root), tuple(run.rvs)

    def thaw(self, frozen: Any, rvs: tuple[Rv, ...]) -> Any:
        """A new graph. Needs the running loop, whose time is taken as now = 0."""
        return _Thawing(self, rvs).thaw(frozen)

    def number_of(self, value: Any) -> int:
        """The number of an immutable object: the same for all that are equal."""
        known = self._values.get(id(value))
        if known is not None:
            return known
        body = msgspec.json.encode(value) if isinstance(value, msgspec.Struct) else repr(value).encode()
        number = self._numbers.setdefault((type(value), body), len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
            self._values[id(value)] = number
        return number

    def value_of(self, number: int) -> Any:
        """The object of that number."""
        return self._kept[number]

    def job_of(self, number: int, rv: Rv) -> TFJob:
        """The job of that number in that version; always the same object."""
        job = self._jobs.get((number, rv))
        if job is None:
            blank: TFJob = self._kept[number]
            meta = msgspec.structs.replace(blank.metadata, resource_version=f"{_RV}{rv}")
            job = self._jobs[number, rv] = msgspec.structs.replace(blank, metadata=meta)
        return job

    def is_surrounding(self, value: Any) -> bool:
        """Whether an object stays as it is."""
        return isinstance(value, self._surroundings)

    def fields_of(self, kind: type) -> tuple[str, ...]:
        """The names of the slots of a class."""
        if kind not in self._fields:
            slots = [getattr(base, "__slots__", ()) for base in kind.__mro__]
            names = [name for found in slots for name in ([found] if isinstance(found, str) else found)]
            self._fields[kind] = tuple(sorted({name for name in names if not name.startswith("__")}))
        return self._fields[kind]


class _Freezing:
    def __init__(self, freezer: Freezer, now: float) -> None:
        self._freezer = freezer
        self._now = now
        self._met: dict[int, int] = {}
        self.rvs: list[Rv] = []

    def freeze(self, value: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - a list of kinds, one return each
        if isinstance(value, str):
            if value.startswith(_RV) and value[2:].isdigit():
                self.rvs.append(Rv(value[2:]))
                return ("rv",)
            return value
        if isinstance(value, Rv):
            self.rvs.append(value)
            return ("number",)
        if isinstance(value, float):
            return ("time", self._relative(value))
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, TFJob):
            self.rvs.append(Rv(value.metadata.resource_version[2:]))
            meta = msgspec.structs.replace(value.metadata, resource_version="")
            return ("job", self._freezer.number_of(msgspec.structs.replace(value, metadata=meta)))
        if isinstance(value, msgspec.Struct):
            return ("value", self._freezer.number_of(value))
        if dataclasses.is_dataclass(value) and type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return ("value", self._freezer.number_of(value))
        if self._freezer.is_surrounding(value):
            return ("surrounding", value)
        if isinstance(value, tuple):
            return ("tuple", type(value), tuple([self.freeze(part) for part in value]))
        return self._freeze_mutable(value)

    def _freeze_mutable(self, value: Any) -> Any:
        met = self._met.get(id(value))
        if met is not None:
            return ("met", met)
        self._met[id(value)] = len(self._met)
        if isinstance(value, OrderedDict):
            return ("dict", OrderedDict, tuple([(self.freeze(k), self.freeze(v)) for k, v in value.items()]))
        if isinstance(value, dict):  # in which order a cache lists its objects is left out of account
            return ("dict", dict, tuple([(self.freeze(k), self.freeze(value[k])) for k in _ordered(value)]))
        if isinstance(value, set):
            return ("set", set, tuple([self.freeze(part) for part in _ordered(value)]))
        if isinstance(value, (list, deque)):
            return ("list", type(value), tuple([self.freeze(part) for part in value]))
        if isinstance(value, MethodType):
            return ("method", value.__func__, self.freeze(value.__self__))
        if isinstance(value, asyncio.Event):
            return ("event",)
        if isinstance(value, DelayingQueue):
            return self._freeze_delaying(value)
        return ("object", type(value), self._fields(value))

    def _fields(self, value: Any, leave_out: frozenset[str] = frozenset()) -> tuple[tuple[str, Any], ...]:
        names = [name for name in self._freezer.fields_of(type(value)) if name not in leave_out]
        names += sorted(getattr(value, "__dict__", ()))
        return tuple([(name, self.freeze(getattr(value, name))) for name in names])

    def _freeze_delaying(self, queue: DelayingQueue[Any]) -> Any:
        """Its heap keeps what was superseded, and numbers for order: all that matters is what is due when."""
        due = tuple(sorted((self._relative(entry[0]), item) for item, entry in queue._live.items()))
        left_out = frozenset({"_heap", "_live", "_sequence", "_timer"})
        return ("delaying", type(queue), self._fields(queue, left_out), due)

    def _relative(self, time: float) -> int:
        """Seconds from now, as far as they can make a difference: nothing here has a period but one second, and long."""
        since = int(time - self._now)
        if since < -1:
            return -1 if since > -300 else -LONG_S
        return since if since <= 1 else LONG_S


class _Thawing:
    def __init__(self, freezer: Freezer, rvs: tuple[Rv, ...]) -> None:
        self._freezer = freezer
        self._rvs = iter(rvs)
        self._met: list[Any] = []

    def thaw(self, frozen: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - as above
        if not isinstance(frozen, tuple):
            return frozen
        kind = frozen[0]
        if kind == "rv":
            return f"{_RV}{next(self._rvs)}"
        if kind == "number":
            return next(self._rvs)
        if kind == "time":
            return float(frozen[1])
        if kind == "job":
            return self._freezer.job_of(frozen[1], next(self._rvs))
        if kind == "value":
            return self._freezer.value_of(frozen[1])
        if kind == "surrounding":
            return frozen[1]
        if kind == "tuple":
            parts = [self.thaw(part) for part in frozen[2]]
            return tuple(parts) if frozen[1] is tuple else frozen[1](*parts)
        if kind == "met":
            return self._met[frozen[1]]
        place = len(self._met)
        self._met.append(None)
        if kind == "method":
            method = self._met[place] = MethodType(frozen[1], self.thaw(frozen[2]))
            return method
        if kind == "event":
            event = self._met[place] = asyncio.Event()
            return event
        made = self._met[place] = object.__new__(frozen[1]) if kind in {"object", "delaying"} else frozen[1]()
        if kind == "dict":
            for key, value in frozen[2]:
                name = self.thaw(key)
                made[name] = self.thaw(value)
        elif kind == "set":
            made.update([self.thaw(part) for part in frozen[2]])
        elif kind == "list":
            made.extend([self.thaw(part) for part in frozen[2]])
        else:
            for name, value in frozen[2]:
                setattr(made, name, self.thaw(value))
        if kind == "delaying":
            made._heap, made._live, made._sequence, made._timer = [], {}, 0, None
            for due, item in frozen[3]:
                made.add_after(item, due)
        return made


def _ordered(parts: Any) -> list[Any]:
    return sorted(parts, key=_order)


def _order(part: Any) -> tuple[int, str]:
    """Versions by their number, so that the order of their shapes does not depend on how many digits they have."""
    if isinstance(part, str) and part.startswith(_RV) and part[2:].isdigit():
        return int(part[2:]), part
    return 0, part if isinstance(part, str) else repr(part)
