"""The model API server gets the recorded requests of a real one, in order, and must respond in the same way.

`test/data/recordings/VERSION/api/GROUP.jsonl` has one step per line. A line with `asked` is a recorded request with its
response; `left_out` is the reason if the model does not get it. A line with `did` is another action, reconstructed from the
responses: a request, or one of compact, restart, define, redefine, undefine, wait, caches began. `from` is etcd's revision
before the step: the model's counter is set to it, so versions of lists and bookmarks are masked only where they depend on
other writes. UIDs in requests are replaced by the model's.
"""

import asyncio
import base64
import json
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from kit.model.kinds import Kind
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from simulation.conformance.session import EMPTY, HIDDEN, SHOWN, shown
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.meta import Resource

Step = dict[str, Any]

SLACK_S: Final = 2.5
"""How much the time of an event may differ from the recording: a bookmark is up to 2s late."""


class Player:
    """Plays the steps of one group on a model. Invariant: `uids` maps each recorded UID to the model's UID of that object."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._transport = ModelTransport(server, "tester")
        self._uids: dict[str, str] = {}

    async def play(self, step: Step) -> list[str]:
        if "from" in step:
            self._server.storage.advance(step["from"])
        if "did" in step:
            await self._do(step)
            return []
        if "left_out" in step:
            return []
        return [f"{step['about']}: {each}" for each in await self._ask(step)]

    async def _do(self, step: Step) -> None:
        storage = self._server.storage
        match step["did"]:
            case "wait":
                await asyncio.sleep(step["seconds"])
            case "compact":
                storage.compact(storage.rv, caches=False)
            case "restart":
                self._server.restart()
            case "caches began":
                for plural, rv in step.items():
                    if plural in storage.collections:
                        storage.collections[plural].forgotten = rv
            case "define":
                resource = Resource(
                    "example.com", "v1", step["plural"], step["kind"], namespaced=step.get("namespaced", True)
                )
                self._server.define(Kind(resource, custom=True, unconditional=False))
            case "redefine":
                self._server.redefine(step["plural"])
            case "undefine":
                self._server.undefine(step["plural"])
            case request:
                response = await self._transport.send(self._request(request, step))
                answer = json.loads(await response.body())
                assert response.status < 300, answer
                if "uid" in step:
                    self._uids[step["uid"]] = answer["metadata"]["uid"]

    async def _ask(self, step: Step) -> list[str]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        request = self._request(step["asked"], step)
        response = await self._transport.send(request)
        others = [asyncio.create_task(self._later(seconds, other)) for seconds, other in step.get("meanwhile", ())]
        events: list[tuple[float, Any]] = []
        body = b""
        try:
            async with asyncio.timeout(step.get("left_after")):
                async for chunk in response.chunks():
                    body += chunk
                    if request.query.get("watch") == "true" and response.status == 200:
                        events += [(loop.time() - started, json.loads(line)) for line in chunk.splitlines()]
        except TimeoutError:
            pass
        finally:
            response.close()
        await asyncio.gather(*others)
        differences = _compare("status", step["status"], response.status)
        if differences:
            return [*differences, f"the answer is {body[:500]!r}"]
        headers = {name: response.headers[name] for name in ("Retry-After", "Warning") if name in response.headers}
        differences += _compare("headers", step.get("headers", {}), headers)
        if "seconds" in step:
            differences += _compare("seconds", step["seconds"], round(loop.time() - started))
        if "events" in step:
            return differences + self._compare_events(step["events"], events)
        if "text" in step:
            return differences + _compare("text", step["text"], body.decode())
        return differences + self._compare_answer(step, json.loads(body))

    async def _later(self, seconds: float, step: Step) -> None:
        await asyncio.sleep(seconds)
        await self.play(step)

    def _request(self, line: str, step: Step) -> Request:
        method, target = line.split(" ")
        parts = urlsplit(target)
        body = step.get("body")
        text = None if body is None else body if isinstance(body, str) else json.dumps(_grown(body))
        for recorded, ours in self._uids.items():
            text = text and text.replace(recorded, ours)
        raw = None if text is None else text.encode()
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return Request(method, parts.path, query, raw, step.get("type", "application/json"))

    def _compare_answer(self, step: Step, answer: Any) -> list[str]:
        if "list" in step:
            recorded = step["list"]
            differences = _compare("items", recorded["items"], len(answer["items"]))
            if "names" in step:
                names = [item["metadata"]["name"] for item in answer["items"]]
                differences += _compare("names", sorted(step["names"]), sorted(names))
            known = _masked(recorded["metadata"])
            return differences + _compare("metadata", known, _picked(known, _masked(answer["metadata"])))
        if "part" in step:
            self._learn(step["part"], answer)
            known, ours = self._masked(step["part"]), _masked(answer)
            return _compare("answer", known, _picked(known, ours))
        self._learn(step["answer"], answer)
        return _compare("answer", self._masked(step["answer"]), _masked(answer))

    def _compare_events(self, recorded: list[tuple[float, Any]], events: list[tuple[float, Any]]) -> list[str]:
        wanted = _once([(at, self._masked(event.get("part", event))) for at, event in recorded])
        ours = _once([(at, _masked(event)) for at, event in events])
        known = [_picked(event, our) for (_, event), (_, our) in zip(wanted, ours, strict=False)]
        differences = _compare("number of events", len(wanted), len(ours))
        differences += _compare("events", [event for _, event in wanted], known)
        late = [(was, at) for (was, _), (at, _) in zip(wanted, ours, strict=False) if abs(was - at) > SLACK_S]
        return differences + _compare("late events", [], late)

    def _learn(self, recorded: Any, answer: Any) -> None:
        if isinstance(answer, dict) and "uid" in recorded.get("metadata", {}) and "uid" in answer.get("metadata", {}):
            self._uids.setdefault(recorded["metadata"]["uid"], answer["metadata"]["uid"])

    def _masked(self, recorded: Any) -> Any:
        text = json.dumps(recorded)
        for theirs, ours in self._uids.items():
            text = text.replace(theirs, ours)
        return _masked(_grown(json.loads(text)))


def _compare(what: str, recorded: Any, ours: Any) -> list[str]:
    return [] if recorded == ours else [f"{what} was {recorded!r}, and is {ours!r}"]


def _picked(known: Any, ours: Any) -> Any:
    """Return the fields of `ours` that are in `known`, because recordings were cut to some fields."""
    if isinstance(known, dict) and isinstance(ours, dict):
        return {name: _picked(known[name], ours.get(name)) for name in known}
    return ours


def _once(events: list[tuple[float, Any]]) -> list[tuple[float, Any]]:
    """Drop a bookmark that directly follows another: a server may send two before a watch ends."""
    kept: list[tuple[float, Any]] = []
    for at, event in events:
        if kept and event["type"] == "BOOKMARK" and kept[-1][1]["type"] == "BOOKMARK" and at - kept[-1][0] < SLACK_S:
            continue
        kept.append((at, event))
    return kept


def _grown(value: Any) -> Any:
    """Expand repetitions, abbreviated in the recording as `x<260 times>`."""
    text = json.dumps(value)
    return json.loads(re.sub(r"(\w)<(\d+) times>", lambda found: found[1] * int(found[2]), text))


def _masked(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        if value.get("kind") in SHOWN and "metadata" in value:
            value = value | shown(value, SHOWN[value["kind"]])
        if value.get("type") == "BOOKMARK":
            meta = value["object"]["metadata"] | {"resourceVersion": "<version>"}
            value = value | {"object": value["object"] | {"metadata": meta}}
        masked = {key: _masked(value[key], key) for key in sorted(value) if key not in HIDDEN}
        return {key: inner for key, inner in masked.items() if inner not in EMPTY}
    if isinstance(value, list):
        return [_masked(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if name == "continue" and value:
        token = json.loads(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
        return token | {"start": token["start"].removeprefix("/")}
    if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
        return "<time>"
    value = re.sub(r"(?<=y{20})[a-z0-9]{5}\b", "<suffix>", value)
    return re.sub(r"(current: |\()\d+", r"\1<version>", value)
