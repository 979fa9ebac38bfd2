"""The gate that opens when something is synced."""

from __future__ import annotations

import asyncio

import pytest

from fakes.source import settle
from tfjob_operator.informers.errors import InformerStoppedError
from tfjob_operator.informers.processor import SyncGate


async def test_who_waits_goes_on_when_the_gate_opens_and_who_comes_later_need_not_wait() -> None:
    """SI-08, wait_test.go:TestWaitFor"""
    gate = SyncGate("pods")
    waiting = asyncio.create_task(gate.wait())
    await settle()
    assert not waiting.done()
    gate.open()
    await waiting
    await gate.wait()
    assert gate.is_open


async def test_a_caller_whose_wait_was_in_vain_gets_an_error() -> None:
    """SI-08, wait_test.go:TestSyncResult"""
    gate = SyncGate("pods")
    waiting = asyncio.create_task(gate.wait())
    await settle()
    gate.give_up()
    with pytest.raises(InformerStoppedError, match="pods stopped before it was synced"):
        await waiting
    assert not gate.is_open


async def test_a_gate_that_was_opened_stays_open() -> None:
    """SI-07, synctrack_test.go:TestBasicLogic"""
    gate = SyncGate("pods")
    gate.open()
    gate.give_up()
    await gate.wait()
    assert gate.is_open
