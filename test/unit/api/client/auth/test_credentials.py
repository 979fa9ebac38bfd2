"""RefreshedCredentials: they are read again in the background; requests wait only while there are no valid ones."""

import asyncio
from collections.abc import Callable
from typing import Self

import pytest
from structlog.testing import capture_logs

from tfjob_operator.api.access import AccessError
from tfjob_operator.api.client.auth.credentials import READ_LIMIT_S, RETRY_S, RefreshedCredentials
from tfjob_operator.api.client.errors import CredentialsError
from tfjob_operator.api.client.http import Credentials, FixedCredentials


class Reads:
    """Stands in for the thread: a read takes `takes_s` and then returns the next outcome."""

    def __init__(self, *outcomes: str | Exception, takes_s: float = 0.5, fresh_s: float = 60.0) -> None:
        self.outcomes = list(outcomes)
        self.takes_s = takes_s
        self.fresh_s = fresh_s
        self.count = 0

    def read(self) -> Credentials:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return Credentials(outcome, fresh_s=self.fresh_s)

    def call(self, function: Callable[[], Credentials], name: str) -> asyncio.Future[Credentials]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Credentials] = loop.create_future()

        def finish() -> None:
            try:
                future.set_result(function())
            except (AccessError, ValueError) as error:
                future.set_exception(error)

        self.count += 1
        loop.call_later(self.takes_s, finish)
        return future

    def source(self, first: str | None = None) -> tuple[Self, RefreshedCredentials]:
        """Itself, and credentials that are read by it."""
        value = None if first is None else Credentials(first, fresh_s=self.fresh_s)
        return self, RefreshedCredentials(self.read, first=value, call=self.call)


async def header(source: RefreshedCredentials) -> str | None:
    return (await source.get()).authorization


async def test_requests_without_a_value_wait_for_one_read_together() -> None:
    reads, source = Reads("one").source()
    assert await asyncio.gather(*(header(source) for _ in range(5))) == ["one"] * 5
    assert reads.count == 1


async def test_a_value_is_used_until_it_is_no_longer_fresh_and_then_while_the_next_one_is_read() -> None:
    """In-cluster tokens: the file is read once a minute, and no request ever waits for that."""
    reads, source = Reads("two").source("one")
    started = asyncio.get_running_loop().time()
    assert await header(source) == "one"
    await asyncio.sleep(59)
    assert await header(source) == "one"
    assert reads.count == 0
    await asyncio.sleep(2)
    assert [await header(source), await header(source)] == ["one", "one"]
    assert asyncio.get_running_loop().time() == started + 61
    await asyncio.sleep(1)
    assert await header(source) == "two"
    assert reads.count == 1


async def test_a_failed_read_leaves_the_last_good_value_and_is_reported_without_its_secret() -> None:
    _, source = Reads(ValueError("s3cret"), AccessError("the file is gone"), "two").source("one")
    await header(source)
    with capture_logs() as lines:
        for _ in range(2):
            await asyncio.sleep(61)
            assert await header(source) == "one"
        await asyncio.sleep(1)
    assert [line["error"] for line in lines] == ["a ValueError", "the file is gone"]
    await asyncio.sleep(RETRY_S)
    assert await header(source) == "two"


async def test_without_any_value_the_failure_is_raised_and_not_repeated_for_each_request() -> None:
    """A plugin that does not exist must not be started a thousand times a second by the requests that need it."""
    reads, source = Reads(AccessError("no such plugin"), "one").source()
    for _ in range(3):
        with pytest.raises(CredentialsError, match="no such plugin"):
            await source.get()
    assert reads.count == 1
    await asyncio.sleep(RETRY_S)
    assert await header(source) == "one"


async def test_a_read_that_hangs_fails_requests_in_time_and_is_not_started_twice() -> None:
    reads, source = Reads("late", takes_s=1000.0).source()
    started = asyncio.get_running_loop().time()
    for _ in range(2):
        with pytest.raises(CredentialsError, match="no credentials after 60 s"):
            await source.get()
    assert asyncio.get_running_loop().time() - started == pytest.approx(2 * READ_LIMIT_S)
    await asyncio.sleep(900)
    assert await header(source) == "late"
    assert reads.count == 1


async def test_a_cancelled_request_does_not_cancel_the_read_for_the_others() -> None:
    _, source = Reads("one").source()
    impatient = asyncio.create_task(source.get())
    patient = asyncio.create_task(header(source))
    await asyncio.sleep(0.1)
    impatient.cancel()
    assert await patient == "one"


async def test_after_a_refusal_the_next_request_waits_for_what_is_read_again() -> None:
    """client-go: after a 401 the plugin runs again, even if its token has no expiry; the refused token is not sent twice."""
    _, source = Reads("two", fresh_s=1e9).source("one")
    await header(source)
    await asyncio.sleep(100)
    source.refused()
    assert await header(source) == "two"


async def test_an_expired_token_is_never_sent_however_seldom_requests_are() -> None:
    """As in client-go an old value is read again before the request; otherwise each request would send the previous one."""
    _, source = Reads("two", "three", fresh_s=80).source("one")
    await header(source)
    await asyncio.sleep(99)
    assert await header(source) == "one", "read again, but good for another second"
    await asyncio.sleep(101)
    assert await header(source) == "three"


async def test_a_plugin_that_hangs_is_waited_for_no_longer_than_for_the_first_value() -> None:
    """The old token is then sent, and the user gets the server's response to it."""
    _, source = Reads("two", takes_s=1e6, fresh_s=80).source("one")
    await header(source)
    await asyncio.sleep(200)
    began = asyncio.get_running_loop().time()
    assert await header(source) == "one"
    assert asyncio.get_running_loop().time() == pytest.approx(began + READ_LIMIT_S)


async def test_a_server_that_refuses_everything_does_not_start_a_plugin_per_request() -> None:
    reads, source = Reads(*["same"] * 100, takes_s=0.01, fresh_s=1e9).source("same")
    for _ in range(1000):
        await header(source)
        source.refused()
        await asyncio.sleep(0.1)
    assert reads.count == pytest.approx(100 / RETRY_S, abs=1)


async def test_a_plugin_that_returns_expired_tokens_is_not_run_for_each_request() -> None:
    reads, source = Reads(*["expired"] * 100, takes_s=0.01, fresh_s=0.0).source()
    for _ in range(1000):
        await header(source)
        await asyncio.sleep(0.1)
    assert reads.count == pytest.approx(100 / RETRY_S, abs=1)


async def test_fixed_credentials_stay_what_they_are_and_no_repr_holds_any() -> None:
    source = FixedCredentials(Credentials("Bearer s3cret"))
    source.refused()
    assert (await source.get()).authorization == "Bearer s3cret"
    assert "s3cret" not in f"{source!r}{await source.get()!r}"
