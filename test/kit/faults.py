"""The rates of the faults of network and server, drawn for each seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from kit.model.refusals import Refusal, expired
from kit.model.server import Answer

RATES: Final = (0.0, 0.0, 0.05, 0.2)
"""How often a kind of fault happens to a request, drawn once for each seed. Half of the seeds are without it, so that other
faults occur without it, too."""

RATES_OF_THE_RARE: Final = (0.0, 0.0, 0.15, 0.6)
"""The same for faults of watches and of lists from a cache, of which a seed has only a few."""

TROUBLES: Final = (0, 0, 1, 4)
"""How often a server fault happens in a seed."""

LATENCIES_S: Final = (0.0, 0.02, 0.3, 1.5)
"""The maximum latency of a message between client and server, drawn once per seed."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Rates of faults per request up to `refusals`, per watch or list up to `stale`, then numbers of server faults.

    lost_request, lost_reply: the connection breaks, or no response arrives, before or after the server has acted.
    refusals: 409, 429, 5xx and HTML pages of proxies without a cause.
    error_event: a watch ends with an ERROR.
    closed_at_once: a very short watch.
    frozen: a watch stays open without events.
    duplicate: a new watch repeats the last event first.
    stale: a list comes from a lagging watch cache.
    freezes: the watch cache of a resource stops for a while.
    kills, stalls: the process of a controller ends or stands still at a request. `draw` leaves them at 0.
    """

    latency_s: float
    refused: float
    lost_request: float
    lost_reply: float
    refusals: float
    cut: float
    frozen: float
    error_event: float
    closed_at_once: float
    duplicate: float
    stale: float
    restarts: int
    compactions: int
    freezes: int
    kills: float = 0.0
    stalls: float = 0.0

    @classmethod
    def draw(cls, random: Random) -> Faults:
        choose = random.choice
        return cls(
            latency_s=choose(LATENCIES_S),
            refused=choose(RATES),
            lost_request=choose(RATES),
            lost_reply=choose(RATES),
            refusals=choose(RATES),
            cut=choose(RATES_OF_THE_RARE),
            frozen=choose(RATES_OF_THE_RARE),
            error_event=choose(RATES_OF_THE_RARE),
            closed_at_once=choose(RATES_OF_THE_RARE),
            duplicate=choose(RATES_OF_THE_RARE),
            stale=choose(RATES_OF_THE_RARE),
            restarts=choose(TROUBLES),
            compactions=choose(TROUBLES),
            freezes=choose(TROUBLES),
        )


CALM: Final = Faults(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0)
"""No faults, and no latency."""


def _status(code: int, reason: str, *, retry_after: int = 0) -> Answer:
    details = {"retryAfterSeconds": retry_after} if retry_after else {}
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return Answer(code, Refusal(code, reason, f"{reason} by chance", details).body(), headers=headers)


REFUSALS: Final = (
    _status(429, "TooManyRequests", retry_after=1),
    _status(500, "InternalError"),
    _status(503, "ServiceUnavailable", retry_after=2),
    _status(503, "ServiceUnavailable"),
    _status(504, "Timeout"),
    Answer(502, b"<html><body>Bad Gateway</body></html>", headers={"Content-Type": "text/html"}),
    Answer(400, b"<html><body><h1>400 Bad request</h1></body></html>", headers={"Content-Type": "text/html"}),
    Answer(404, b"<html><body>There is nothing here</body></html>", headers={"Content-Type": "text/html"}),
    Answer(422, b'{"message":"a gateway that speaks JSON"}', headers={"Content-Type": "application/json"}),
    Answer(200, b"<html><body>Please log in</body></html>", headers={"Content-Type": "application/json"}),
)
CONFLICT: Final = _status(409, "Conflict")

ERROR_EVENTS: Final = (
    expired("too old resource version: 1 (2)"),
    Refusal(500, "InternalError", "etcdserver: no leader"),
    Refusal(429, "TooManyRequests", "storage is (re)initializing", {"retryAfterSeconds": 1}),
    Refusal(500, "", "unable to decode an event from the watch stream"),
)
