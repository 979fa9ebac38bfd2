"""Subjects `decode` and `store`: JSON and protobuf into slices, slices into an indexed store; on pods from the real server.

The yardstick of decoding is `json.loads` of the same bytes in the same round. Time is CPU time: nothing here waits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from statistics import median
from typing import Final

import msgspec

from hack.bench.bench import Bench
from hack.bench.child import MeasureError
from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result
from tfjob_operator.api.core import PODS
from tfjob_operator.api.core_messages import POD
from tfjob_operator.api.meta import OWNER_INDEX, index_by_owner, meta_key
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.informers import Codec, Indexer
from tfjob_operator.informers.listwatch import ProtobufListReader
from tfjob_operator.informers.store import NAMESPACE_INDEX, index_by_namespace

ROUNDS: Final = 7
PAGE: Final = 500
REPEATS: Final = 10
STORED: Final = 10_000
CODEC: Final = Codec(PODS, Pod, message=POD)


def measure_decoding(bench: Bench) -> list[Result]:
    """Measure a list page and watch lines, in objects a second."""
    page, message = _page(bench), bench.cluster.page_in_protobuf(PAGE)
    lines = [b'{"type":"MODIFIED","object":' + raw + b"}\n" for raw in _items(page)]
    bench.say(f"decoding a list page and as many watch lines of {PAGE} pods, {ROUNDS} times")
    sides: dict[str, Callable[[], object]] = {
        "page": lambda: asyncio.run(_decode_page(page)),
        "page protobuf": lambda: asyncio.run(_decode_protobuf(message)),
        "page json": lambda: _repeat(lambda: json.loads(page)),
        "line": lambda: _repeat(lambda: [CODEC.decode_event(line) for line in lines]),
        "line json": lambda: _repeat(lambda: [json.loads(line) for line in lines]),
    }
    rates = interleaved({name: partial(_rate, side) for name, side in sides.items()}, ROUNDS)
    return [
        Result("decode_list_page", median(rates["page"]), "objects/s"),
        Result("decode_list_page_vs_json", ratio(rates["page"], rates["page json"]), "x"),
        Result("decode_list_page_protobuf_vs_ours", ratio(rates["page protobuf"], rates["page"]), "x"),
        Result("decode_watch_line", median(rates["line"]), "objects/s"),
        Result("decode_watch_line_vs_json", ratio(rates["line"], rates["line json"]), "x"),
    ]


def measure_store(bench: Bench) -> list[Result]:
    """Measure a put of a changed object and a replacement of all, with two indices, in microseconds an object."""
    decoded = asyncio.run(CODEC.decode_page(_page(bench))).items
    pods = [_renamed(decoded[number % PAGE], number) for number in range(STORED)]
    changed = [_renamed(pod, number) for number, pod in enumerate(pods)]
    bench.say(f"storing {STORED:,} pods under two indices, {ROUNDS} times")
    sides = {"put": partial(_put, pods, changed), "replace": partial(_replace, pods)}
    seconds = interleaved(sides, ROUNDS)
    return [
        Result("store_put", median(seconds["put"]) / STORED * 1e6, "us/object"),
        Result("store_replace", median(seconds["replace"]) / STORED * 1e6, "us/object"),
    ]


def _page(bench: Bench) -> bytes:
    bench.cluster.fill(PAGE)
    return bench.cluster.page(PAGE)


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw]


def _items(page: bytes) -> list[bytes]:
    """Return the objects of a list as a watch sends them: with their kind, which a list leaves out."""
    head = b'{"kind":"Pod","apiVersion":"v1",'
    return [head + bytes(raw).lstrip(b"{ \n") for raw in msgspec.json.decode(page, type=_RawPage).items]


def _rate(side: Callable[[], object]) -> float:
    began = time.thread_time()
    side()
    return PAGE * REPEATS / (time.thread_time() - began)


def _repeat(decode: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        decode()


async def _decode_page(page: bytes) -> None:
    for _ in range(REPEATS):
        await CODEC.decode_page(page)


async def _decode_protobuf(message: bytes) -> None:
    for _ in range(REPEATS):
        page = await ProtobufListReader(CODEC, POD).read(_arriving(message))
        if len(page.items) != PAGE:
            raise MeasureError(f"{len(page.items)} of {PAGE} pods were read")


async def _arriving(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _renamed(pod: Pod, number: int) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, name=f"{pod.metadata.name}-{number}", resource_version=str(number))
    return msgspec.structs.replace(pod, metadata=meta)


def _indexer() -> Indexer[Pod]:
    return Indexer[Pod]({NAMESPACE_INDEX: index_by_namespace, OWNER_INDEX: index_by_owner})


def _put(pods: list[Pod], changed: list[Pod]) -> float:
    indexer = _indexer()
    for pod in pods:
        indexer.put(meta_key(pod.metadata), pod)
    began = time.thread_time()
    for pod in changed:
        indexer.put(meta_key(pod.metadata), pod)
    return time.thread_time() - began


def _replace(pods: list[Pod]) -> float:
    indexer = _indexer()
    began = time.thread_time()
    new = indexer.replacement()
    new.add(pods)
    indexer.replace(new, "1")
    return time.thread_time() - began
