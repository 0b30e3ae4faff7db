"""The checker finds what it is there to find."""

from __future__ import annotations

from compat_tests.cluster.history import (
    Commit,
    Copy,
    History,
    Seen,
    check,
    check_commits,
    check_complete,
    check_reader,
    check_replicas,
    doubled,
    parse,
    sent_again,
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


def sent_in(*epochs: int, number: int = 1) -> dict[int, list[Copy]]:
    """Copies of one value, the first at offset 1, with the next after all that was sent in between."""
    return {0: [Copy(1 + 2 * place, value_of("w", 0, number), 7, epoch) for place, epoch in enumerate(epochs)]}


def twice(place: int | None = 3) -> History:
    """0, then 1 and 2 stored, and both sent again; 1 is acknowledged at this offset."""
    made = History()
    made.sent["w", 0] = 3
    for offset, number in ((0, 0), (4, 2)):
        made.acknowledge(0, offset, value_of("w", 0, number))
    made.acknowledge(0, place, value_of("w", 0, 1))
    return made


def test_what_the_client_sent_again_in_an_epoch_of_its_own_is_there_twice() -> None:
    found, copies = log(0, 1, 2, 1, 2), sent_in(0, 1)
    copies[0] += [copy._replace(offset=copy.offset + 1) for copy in sent_in(0, 1, number=2)[0]]
    assert doubled(found) == {"w:0:1", "w:0:2"}
    useless = sent_again(twice(), copies, {(7, 1)})
    assert useless == {0: {1, 2}}
    assert check(twice(), found, useless=useless) == []
    assert "DUPLICATES of 2" in check(twice(), found)[0], "and that only where it is said"
    assert "LOST 2" in check(twice(), log(0, 1, 2), useless=useless)[0], "the last copy has to be there"


def test_no_other_value_may_be_there_twice() -> None:
    copies, own = sent_in(0, 1), {(7, 1)}
    assert sent_again(twice(), copies, own)
    assert not sent_again(twice(), copies, {(7, 2), (8, 1)}), "an epoch that the client did not give itself"
    assert not sent_again(twice(), sent_in(0, 0), own), "one epoch: the broker did not know it again"
    assert not sent_again(twice(), sent_in(1, 0), own), "an earlier epoch, which should have been fenced"
    assert not sent_again(twice(), sent_in(0, 1, 1), own)
    assert sent_again(twice(place=5), sent_in(0, 1, 2), {(7, 1), (7, 2)}) == {0: {1, 3}}
    assert not sent_again(twice(place=1), copies, own), "the first copy was acknowledged: not to be sent again"
    assert not sent_again(twice(place=None), copies, own), "it was known again, so the second one should not be there"
    other = [copies[0][0], copies[0][1]._replace(producer_id=8)]
    assert not sent_again(twice(), {0: other}, {(7, 1), (8, 1)}), "another producer"


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


def commits(*offsets: int) -> list[Commit]:
    """Each is asked for when the one before was answered."""
    return [Commit(offset, number, number + 0.5) for number, offset in enumerate(offsets)]


def test_commits() -> None:
    assert check_commits("g", {0: commits(1, 1, 5), 1: []}, {0: 5}) == []
    [problem] = check_commits("g", {0: commits(1, 5, 4, 6)}, {0: 6})
    assert "went back 5 -> 4" in problem
    [problem] = check_commits("g", {0: commits(1, 5)}, {})
    assert "5 was committed, and -1 is there" in problem


def test_commits_that_were_under_way_at_once_are_in_no_order() -> None:
    slow = Commit(4, 1, 9)
    assert check_commits("g", {0: [*commits(1, 2, 3, 5), slow]}, {0: 5}) == []
    [problem] = check_commits("g", {0: [*commits(1, 2, 3, 5), slow._replace(begun=3.6)]}, {0: 5})
    assert "went back 5 -> 4" in problem
    # A member of a generation that is over was let commit late: the group goes on at its offset.
    [problem] = check_commits("g", {0: [*commits(1, 2, 3, 5), slow]}, {0: 4})
    assert "5 was committed, and 4 is there in the end" in problem
