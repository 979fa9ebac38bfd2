"""What the proxy can do to a request. A rule names one of these functions, or what one of them returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

from hack.fault_proxy.proxy import Action, Exchange


async def lose_request(exchange: Exchange) -> web.StreamResponse:
    """Hang up; the server never sees the request."""
    await exchange.hang_up()


async def lose_reply(exchange: Exchange) -> web.StreamResponse:
    """Pass the request on, and hang up instead of passing the response back."""
    await exchange.forward()
    await exchange.hang_up()


async def black_hole(exchange: Exchange) -> web.StreamResponse:
    """Accept the request and never answer."""
    await exchange.wait_for_the_client_to_go()


def kill_before(kill: Callable[[], object]) -> Action:
    """Call `kill`, which ends the client at once (SIGKILL); the server never sees the request."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        kill()
        await exchange.hang_up()

    return act


def kill_after(kill: Callable[[], object]) -> Action:
    """Let the server carry the request out, then call `kill`; the response is not delivered."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        await exchange.forward()
        kill()
        await exchange.hang_up()

    return act


def delay_events(seconds: float) -> Action:
    """Hold every piece of a watch back for that long: others overtake it."""
    return lambda exchange: exchange.forward(lag_s=seconds)


def slow_down(bytes_per_s: float) -> Action:
    """Pass the request on, and the response back at that pace."""
    return lambda exchange: exchange.forward(bytes_per_s=bytes_per_s)


def delay(seconds: float) -> Action:
    """Pass the request on after a delay."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await exchange.forward()

    return act


def rewrite(**query: str) -> Action:
    """Pass the request on with other query parameters, to get the server's own response to those."""
    return lambda exchange: exchange.forward(query=query)


def answer_status(code: int, reason: str, *, cause: str = "", retry_after_s: int = 0) -> Action:
    """Answer with a Status, as the API server does when it refuses a request."""
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else {}
    return _answer(code, "application/json", msgspec.json.encode(_status(code, reason, cause, retry_after_s)), headers)


def answer_html(code: int) -> Action:
    """Answer with an HTML page, as a load balancer does."""
    return _answer(code, "text/html", b"<html><body>Welcome</body></html>")


def error_event(code: int, reason: str) -> Action:
    """Answer with a stream that holds nothing but an ERROR event."""
    event = {"type": "ERROR", "object": _status(code, reason)}
    return _answer(200, "application/json", msgspec.json.encode(event) + b"\n")


def _answer(code: int, content_type: str, body: bytes, headers: Mapping[str, str] | None = None) -> Action:
    async def act(exchange: Exchange) -> web.StreamResponse:
        return exchange.answer(code, body, {"Content-Type": content_type, **(headers or {})})

    return act


def _status(code: int, reason: str, cause: str = "", retry_after_s: int = 0) -> dict[str, object]:
    details = {"causes": [{"reason": cause}] if cause else [], "retryAfterSeconds": retry_after_s}
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": reason, "details": details}
