"""Freezes an operator's memory into a hashable value and restores it, so the search can continue from it several times.

It is generic, so new fields of the controller are included automatically. The objects that exist from the start stay; the
values of their fields are frozen and restored. Exceptions: clients and clocks are not touched; times are relative to now and
rounded to relevant values; versions of the job are separate, because their numbers have no meaning.
"""

import asyncio
import dataclasses
import enum
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from datetime import datetime
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

import msgspec

from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.workqueue.queue import DelayingQueue
from worlds.values import LONG_S, Child, Rv

_PLAIN: Final = (
    type(None),
    bool,
    int,
    bytes,
    datetime,
    enum.Enum,
    type,
    FunctionType,
    BuiltinFunctionType,
    asyncio.Event,
)
_RV: Final = "rv"
_AS_IT_IS, _NUMBERED, _TUPLE, _TAKEN_APART = range(4)
_OF_DELAYING: Final = frozenset({"_heap", "_live", "_sequence", "_timer"})


class Freezer:
    """Freezes and restores the graph of objects below `root`; `surroundings` are classes whose objects are left alone."""

    def __init__(self, root: object, surroundings: tuple[type, ...]) -> None:
        self._surroundings = surroundings
        self._sorts: dict[type, int] = {}
        self._fields: dict[type, tuple[str, ...]] = {}
        self._values: dict[int, int] = {}  # id of an immutable object -> its number; the object lives on in `_kept`
        self._numbers: dict[tuple[type, bytes], int] = {}
        self._kept: list[Any] = []
        self._jobs: dict[tuple[int, Rv], Any] = {}
        self._same: dict[Any, Any] = {}
        self._fixtures: dict[int, Any] = {}
        self._fixed: list[tuple[Any, str, Any]] = []
        self._furniture: list[tuple[Any, str, Any]] = []
        self._variable: list[tuple[Any, str]] = []
        self._delaying: list[DelayingQueue[str]] = []
        self._explore(root)

    def freeze(self, now: float) -> tuple[Any, tuple[Rv, ...]]:
        """Return what the graph holds, as a hashable value, and the versions of the job in it."""
        for owner, name, value in self._fixed:
            assert getattr(owner, name) is value, f"{owner}.{name} was thought to be fixed"
        for owner, name, value in self._furniture:
            assert getattr(owner, name) == value, f"{owner}.{name} was thought to be fixed"
        rvs: list[Rv] = []
        parts = [self._freeze(getattr(owner, name), now, rvs) for owner, name in self._variable]
        # The heap of a queue keeps entries that were superseded; all that matters is which item is due when.
        parts += [
            tuple(sorted((_relative(entry[0] - now), item) for item, entry in queue._live.items()))
            for queue in self._delaying
        ]
        return tuple([self._same.setdefault(part, part) for part in parts]), tuple(rvs)

    def restore(self, frozen: Any, rvs: tuple[Rv, ...]) -> None:
        """Let the graph hold this again. Needs the running loop, whose time is taken as now = 0."""
        versions = iter(rvs)
        parts = iter(frozen)
        for owner, name in self._variable:
            setattr(owner, name, self._thaw(next(parts), versions))
        for queue in self._delaying:
            queue._heap, queue._live, queue._sequence, queue._timer = [], {}, 0, None
            for due, item in next(parts):
                queue.add_after(item, due, low_priority=item in queue._delayed_low)

    def _explore(self, value: Any) -> None:
        """Find the objects that are there from the beginning, and which of their fields can change."""
        if id(value) in self._fixtures or self._sort_of(type(value)) != _TAKEN_APART:
            return
        if isinstance(value, (dict, list, set, deque)):
            for part in (*value, *(value.values() if isinstance(value, dict) else ())):
                self._explore(part)
            return
        self._fixtures[id(value)] = value
        if isinstance(value, MethodType):
            self._explore(value.__self__)
            return
        left_out = frozenset[str]()
        if isinstance(value, DelayingQueue):
            self._delaying.append(value)
            left_out = _OF_DELAYING
        for name in self._names(value):
            if name in left_out:
                continue
            held = getattr(value, name)
            self._explore(held)
            if id(held) in self._fixtures or isinstance(held, self._surroundings):
                self._fixed.append((value, name, held))
            elif self._is_furniture(held):
                self._furniture.append((value, name, held.copy()))
            else:
                self._variable.append((value, name))

    def _is_furniture(self, held: Any) -> bool:
        """Whether a field lists parts of the graph, such as handlers: then nothing is added later."""
        parts = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
        return bool(parts) and all(id(part) in self._fixtures or isinstance(part, FunctionType) for part in parts)

    def _names(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if kind not in self._fields:
            slots = [getattr(base, "__slots__", ()) for base in kind.__mro__]
            names = {name for found in slots for name in ([found] if isinstance(found, str) else found)}
            self._fields[kind] = tuple(sorted(name for name in names if not name.startswith("__")))
        yield from self._fields[kind]
        for name in getattr(value, "__dict__", ()):
            if name != "__orig_class__":  # what Generic leaves behind
                yield name

    def _sort_of(self, kind: type) -> int:
        sort = self._sorts.get(kind)
        if sort is None:
            sort = self._sorts[kind] = self._find_sort(kind)
        return sort

    def _find_sort(self, kind: type) -> int:
        if kind is Child:
            return _AS_IT_IS
        if issubclass(kind, tuple):
            return _TUPLE
        if kind in {Rv, float} or issubclass(kind, msgspec.Struct):
            return _NUMBERED
        if issubclass(kind, (*_PLAIN, str, *self._surroundings)):
            return _AS_IT_IS
        if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            return _NUMBERED
        return _TAKEN_APART

    def _freeze(self, value: Any, now: float, rvs: list[Rv]) -> Any:
        kind = type(value)
        sort = self._sort_of(kind)
        if sort == _AS_IT_IS:
            if kind is str and _is_version(value):
                rvs.append(Rv(value[2:]))
                return (_RV,)
            return value
        if sort == _TUPLE:
            return ("tuple", kind, *[self._freeze(part, now, rvs) for part in value])
        if sort == _NUMBERED:
            return self._freeze_value(value, kind, now, rvs)
        if id(value) in self._fixtures:
            return ("fixture", id(value))
        return self._freeze_object(value, kind, now, rvs)

    def _freeze_object(self, value: Any, kind: type, now: float, rvs: list[Rv]) -> Any:
        freeze = self._freeze
        if kind is dict:  # the order in which a cache lists its objects is not kept
            return ("dict", None, *[(freeze(key, now, rvs), freeze(value[key], now, rvs)) for key in _ordered(value)])
        if kind is defaultdict:
            parts = [(freeze(key, now, rvs), freeze(value[key], now, rvs)) for key in _ordered(value) if value[key]]
            return ("dict", value.default_factory, *parts)
        if kind is OrderedDict:
            return ("ordered", *[(key, freeze(part, now, rvs)) for key, part in value.items()])
        if kind in {set, frozenset}:
            return ("set", kind, *[freeze(part, now, rvs) for part in _ordered(value)])
        if kind in {list, deque}:
            return ("list", kind, *[freeze(part, now, rvs) for part in value])
        return ("object", kind, *[(name, freeze(getattr(value, name), now, rvs)) for name in self._names(value)])

    def _freeze_value(self, value: Any, kind: type, now: float, rvs: list[Rv]) -> Any:
        if kind is float:
            return ("time", _relative(value - now))
        if kind is Rv:
            rvs.append(value)
            return ("number",)
        if kind is TFJob:
            rvs.append(Rv(value.metadata.resource_version[2:]))
            return ("job", self._number_of_job(value))
        return ("value", self._number_of(value))

    def _thaw(self, frozen: Any, rvs: Iterator[Rv]) -> Any:  # noqa: PLR0911 - a list of kinds, one return each
        if type(frozen) is not tuple:
            return frozen
        kind = frozen[0]
        if kind == "dict":
            pairs = ((self._thaw(key, rvs), self._thaw(value, rvs)) for key, value in frozen[2:])
            return dict(pairs) if frozen[1] is None else defaultdict(frozen[1], pairs)
        if kind == _RV:
            return f"{_RV}{next(rvs)}"
        if kind == "number":
            return next(rvs)
        if kind == "time":
            return float(frozen[1])
        if kind == "job":
            return self._job_of(frozen[1], next(rvs))
        if kind == "value":
            return self._kept[frozen[1]]
        if kind == "fixture":
            return self._fixtures[frozen[1]]
        if kind == "ordered":
            return OrderedDict((key, self._thaw(value, rvs)) for key, value in frozen[1:])
        if kind == "object":
            made = object.__new__(frozen[1])
            for name, value in frozen[2:]:
                setattr(made, name, self._thaw(value, rvs))
            return made
        parts = [self._thaw(part, rvs) for part in frozen[2:]]
        return frozen[1](*parts) if hasattr(frozen[1], "_fields") else frozen[1](parts)

    def _number_of(self, value: Any) -> int:
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

    def _number_of_job(self, job: Any) -> int:
        """The number of a job without its version."""
        known = self._values.get(id(job))
        if known is None:
            meta = msgspec.structs.replace(job.metadata, resource_version="")
            known = self._number_of(msgspec.structs.replace(job, metadata=meta))
        return known

    def _job_of(self, number: int, rv: Rv) -> Any:
        """The job of that number in that version; always the same object."""
        job = self._jobs.get((number, rv))
        if job is None:
            blank = self._kept[number]
            meta = msgspec.structs.replace(blank.metadata, resource_version=f"{_RV}{rv}")
            job = self._jobs[number, rv] = msgspec.structs.replace(blank, metadata=meta)
            self._values[id(job)] = number
        return job


def _relative(seconds: float) -> int:
    """Return the seconds from now, rounded to what can matter: a period here is either one second or long."""
    since = int(seconds)
    if since < -1:
        return -1 if since > -300 else -LONG_S
    return since if since <= 1 else LONG_S


def _is_version(text: str) -> bool:
    return text.startswith(_RV) and text[2:].isdigit()


def _ordered(parts: Any) -> Any:
    return sorted(parts, key=_order) if len(parts) > 1 else parts


def _order(part: Any) -> tuple[int, str]:
    """Sort versions by their number, so that their order does not depend on how many digits they have."""
    if isinstance(part, str):
        return (int(part[2:]) if _is_version(part) else 0), part
    return 0, repr(part)
