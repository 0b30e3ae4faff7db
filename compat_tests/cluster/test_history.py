"""The checker finds what it is there to find."""

from __future__ import annotations

from compat_tests.cluster.history import (
    History,
    Seen,
    check,
    check_commits,
    check_complete,
    check_reader,
    check_replicas,
    parse,
    value_of,
)


def history(acknowledged: int, sent: int | None = None) -> History:
    made = History()
    made.sent["w", 0] = acknowledged if sent is None else sent
    for number in range(acknowledged):
        made.acknowledge(0, number, value_of("w", 0, number))
    return made


def log(*numbers: int) -> dict[int, list[Seen]]:
    return {0: [Seen(offset, value_of("w", 0, number)) for offset, number in enumerate(numbers)]}


def test_nothing_wrong() -> None:
    assert parse(value_of("w", 2, 7)) == ("w", 2, 7)
    assert check(history(3), log(0, 1, 2)) == []
    assert check(history(2, sent=3), log(0, 1, 2)) == [], "what was not acknowledged may be there"
    assert check(history(2, sent=3), log(0, 1)) == [], "or not"


def test_lost() -> None:
    [problem] = check(history(3), log(0, 1))
    assert "LOST 1" in problem and "w:0:2" in problem
    assert "LOST 3" in check(history(3), {})[0]


def test_acknowledged_without_a_place() -> None:
    made = history(1, sent=2)
    made.acknowledge(0, None, value_of("w", 0, 1))
    assert made.count == 2 and check(made, log(0, 1)) == []
    assert "LOST 1" in check(made, log(0))[0]


def test_moved() -> None:
    [problem, order] = check(history(3), log(0, 2, 1))
    assert "not where they were acknowledged" in problem and "OUT OF ORDER" in order


def test_duplicates() -> None:
    found = log(0, 1, 2, 2)
    assert "DUPLICATES of 1" in check(history(3), found)[0]
    assert check(history(3), found, idempotent=False) == []


def test_never_sent() -> None:
    assert "nobody sent" in check(history(2), log(0, 1, 2))[0]
    assert "nobody sent" in check(history(1), {0: [*log(0)[0], Seen(1, "noise")]})[0]
    assert "nobody sent" in check(history(0, sent=1), {1: [Seen(0, value_of("w", 0, 0))]})[0]


def test_an_offset_acknowledged_twice() -> None:
    made = history(1)
    made.acknowledge(0, 0, "w:0:5")
    assert "acknowledged for" in check(made, log(0))[0]


def test_readers() -> None:
    final = log(0, 1, 2)
    assert check_reader("r", log(0, 1), final) == []
    assert "other values" in check_reader("r", log(0, 2), final)[0]
    assert "other values" in check_reader("r", log(0, 1, 2, 3), final)[0]
    assert check_complete("r", log(0, 1, 2), final) == []
    assert "never saw 1" in check_complete("r", log(0, 1), final)[0]


def test_replicas() -> None:
    assert check_replicas({"a": log(0, 1), "b": log(0, 1)}) == []
    assert "differ at 1" in check_replicas({"a": log(0, 1), "b": log(0)})[0]
    assert "differ at 1" in check_replicas({"a": log(0, 1), "b": log(0, 1), "c": log(0, 2)})[0]
    assert check_replicas({"a": log(0, 1), "b": {}}) == [], "a node that holds no replica"


def test_commits() -> None:
    assert check_commits("g", {0: [1, 1, 5], 1: []}) == []
    assert "went back 5 -> 4" in check_commits("g", {0: [1, 5, 4, 6]})[0]
