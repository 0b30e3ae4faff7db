from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest
import trio
import trio.testing

from tests.patience import LONG, SHORT, eventually, measured, until


@pytest.mark.parametrize(("seconds", "factor"), [(0.0001, 1), (0.005, 2.5), (3600, 10)])
def test_the_factor_is_how_much_slower_the_machine_is(seconds: float, factor: float) -> None:
    assert measured(iter((7.0, 7.0 + seconds)).__next__) == pytest.approx(factor)


def test_the_limits_grow_with_the_factor_that_the_environment_gives() -> None:
    assert 60 <= SHORT <= 600 and 300 <= LONG <= 3000
    program = "from tests.patience import LONG, SHORT; print(SHORT, LONG)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"KBROKER_SLOW": "2.5"}
    )
    assert done.stdout.split() == ["150", "750"], done.stderr


def test_what_was_waited_for_is_returned() -> None:
    some: list[int] = []
    assert eventually(lambda: some.append(1) or some[2:], "three") == [1]  # type: ignore[func-returns-value]

    async def some_more() -> list[int]:
        some.append(2)
        return some[5:]

    async def main() -> None:
        assert await until(lambda: some[:1], "one") == [1]
        assert await until(some_more, "three more") == [2]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_failure_says_what_was_waited_for_and_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0 s: a leader; seen last: None$"):
        eventually(lambda: None, "a leader", 0)
    with pytest.raises(AssertionError, match=r"eventually\(lambda: 7 < 0, .*; seen last: False$"):
        eventually(lambda: 7 < 0, seconds=0)
    with pytest.raises(AssertionError, match=r"^not within 0 s: functools.partial\(.*\); seen last: \[\]$"):
        eventually(partial(list, ()), seconds=0)

    async def main() -> None:
        with pytest.raises(AssertionError, match=r"^not within 3 s: records; seen last: \[\]$"):
            await until(list, "records", 3)
        with pytest.raises(AssertionError, match=r"^not within 300 s: an answer; seen last: None$"):
            await until(trio.sleep_forever, "an answer", 300)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
