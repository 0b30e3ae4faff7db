"""Rounds of a poller."""

from __future__ import annotations

from kbroker.runtime.round import Round


def test_what_is_put_off_happens_once_at_the_end_in_order() -> None:
    done: list[str] = []
    round = Round()
    round.at_end(lambda: done.append("written"))
    round.at_end(lambda: round.at_end(lambda: done.append("last")))
    round.at_end(lambda: done.append("replied"))
    assert done == []
    round.end()
    assert done == ["written", "replied", "last"]
    round.end()
    assert len(done) == 3
