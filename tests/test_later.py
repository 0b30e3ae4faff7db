"""A value that comes later: for callbacks, for tasks, and with an error instead."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.runtime.later import Later


def test_the_first_value_or_error_counts() -> None:
    later: Later[int] = Later()
    later.set(1)
    later.fail(ApiError(ErrorCode.NOT_COORDINATOR))
    later.set(2)
    assert (later.done, later.result(), later.error) == (True, 1, None)
    failed: Later[int] = Later()
    failed.fail(ApiError(ErrorCode.NOT_COORDINATOR))
    failed.set(1)
    with pytest.raises(ApiError):
        failed.result()


def test_every_callback_is_called_once_and_in_order() -> None:
    later: Later[str] = Later()
    heard: list[str] = []
    for name in "abc":
        later.on_done(lambda name=name: heard.append(name + later.value))  # type: ignore[misc]
    later.set("!")
    later.set("?")
    later.on_done(lambda: heard.append("late"))
    assert heard == ["a!", "b!", "c!", "late"]


def test_it_begins_when_somebody_first_waits_for_it() -> None:
    begun: list[Later[int]] = []

    def begin(later: Later[int]) -> None:
        begun.append(later)
        later.set(7)

    later = Later(begin)
    assert not begun
    heard: list[Any] = []
    later.on_done(lambda: heard.append(later.value))
    later.on_done(lambda: heard.append(later.value))
    assert (begun, heard) == ([later], [7, 7])


async def test_tasks_await_it() -> None:
    later: Later[int] = Later()
    got: list[Any] = []

    async def wait() -> None:
        try:
            got.append(await later)
        except ApiError as error:
            got.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not got
        later.fail(ApiError(ErrorCode.NOT_COORDINATOR))
    assert got == [ErrorCode.NOT_COORDINATOR] * 2
    done: Later[int] = Later()
    done.set(1)
    with trio.testing.assert_no_checkpoints():
        assert await done == 1
