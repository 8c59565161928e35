from __future__ import annotations

import pytest

from penstock.common.errors import StorageError
from penstock.common.storage import Storage
from penstock.common.testing import FailingStorage, Fault, memory_storage


async def test_a_fault_before_has_no_effect_and_one_after_has() -> None:
    inner = memory_storage()
    for moment, took_effect in (("before", False), ("after", True)):
        failing = FailingStorage(inner, Fault(nth=1, operation="put", moment=moment))  # type: ignore[arg-type]
        with pytest.raises(StorageError, match=f"injected failure {moment} put"):
            await failing.put(moment, b"1")
        assert await inner.exists(moment) == took_effect
        assert failing.failed


async def test_only_the_nth_call_fails() -> None:
    failing = FailingStorage(memory_storage(), Fault(nth=2, operation="put"))
    await failing.put("a", b"1")
    assert await failing.get("a") == b"1"
    with pytest.raises(StorageError):
        await failing.put("b", b"1")
    await failing.put("c", b"1")
    assert failing.calls == ("put", "get", "put", "put")


async def test_children_are_counted_with_their_parent() -> None:
    failing = FailingStorage(memory_storage(), Fault(nth=2))
    await failing.put("a", b"1")
    with pytest.raises(StorageError):
        await failing.child("jobs").put("b", b"1")
    assert failing.failed


async def exercise(storage: Storage) -> None:
    """Every operation once."""
    await storage.put("a", b"hello")
    await storage.put_if_absent("b", b"1")
    await storage.get("a")
    await storage.get_range("a", start=1, length=2)
    await storage.head("a")
    await storage.exists("a")
    async for _ in storage.list():
        pass
    await storage.delete("a")


async def test_every_call_of_a_run_can_be_failed_in_turn() -> None:
    rehearsal = FailingStorage(memory_storage(), Fault(nth=1_000))
    await exercise(rehearsal)
    assert not rehearsal.failed
    assert len(rehearsal.calls) == 8
    for nth, operation in enumerate(rehearsal.calls, start=1):
        for fault in (Fault(nth), Fault(nth, moment="after")):
            with pytest.raises(StorageError, match=f"{fault.moment} {operation}, call {nth}"):
                await exercise(FailingStorage(memory_storage(), fault))
