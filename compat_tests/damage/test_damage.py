"""The parts that decide: what is damaged, what may be lost by that, and whether it was all that is lost."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest

from compat_tests.damage.__main__ import choose, parse
from compat_tests.damage.damaging import KINDS, WAYS, Damage, damage, kind_of
from compat_tests.damage.oracle import Content, Losses, judge, losses

CONTENT = Content(
    records={"txn-0": {0: "a", 1: "b", 3: "c", 5: "d"}},
    aborted={"txn-0": {2: "x"}},
    offsets={"group": {"plain-0": [1, 2]}},
    topics={"txn": 1},
)


def batch(first: int, count: int, *, producer_id: int = 7, is_control: bool = False, body: bytes = b"body") -> bytes:
    """The header of a batch and something behind it: the oracle looks at no more."""
    attributes = 0x30 if is_control else 0x10
    times_and_producer = struct.pack(">qqqhii", 0, 0, producer_id, 0, 0, count)
    after_length = struct.pack(">ibIhi", 0, 2, 0, attributes, count - 1) + times_and_producer + body
    return struct.pack(">qi", first, len(after_length)) + after_length


BATCHES = [
    batch(0, 2),
    batch(2, 1, is_control=True),
    batch(3, 1, producer_id=8),
    batch(4, 1),
    batch(5, 1, is_control=True),
]


def of_batch(number: int, path: str = "txn-0/00000000000000000000.log", batches: list[bytes] = BATCHES) -> Damage:
    """A damage of one byte in the middle of a batch."""
    at = sum(map(len, batches[:number])) + len(batches[number]) // 2
    before = b"".join(batches)
    return Damage(1, path, "flipped bit", before, before, ((at, at + 1),))


def seen(**changed: Any) -> dict[str, Any]:
    """All of `CONTENT`, as a reader tells it, apart from what is changed."""
    state = {"records": [*CONTENT.records["txn-0"].items()], "position": 6, "end": -1}
    whole: dict[str, Any] = {"topics": {"txn": 1}, "partitions": {"txn-0": state}, "offsets": {"group": {"plain-0": 2}}}
    return {**whole, "errors": [], "late": [], "not in sync": [], **changed}


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_in_the_bytes_that_it_names_and_nowhere_else(way: str) -> None:
    for seed in range(300):
        before = Random(seed).randbytes(Random(seed).choice((0, 1, 100, 4096, 20_000)))
        done = damage(Random(seed), way, 1, "plain-0/00000000000000000000.log", before)
        again = damage(Random(seed), way, 1, "plain-0/00000000000000000000.log", before)
        assert done == again
        assert done.after != before or way == "zeroed page"
        after = done.after or b""
        lost = {at for start, end in done.lost for at in range(start, end)}
        assert all(after[at : at + 1] == before[at : at + 1] for at in range(len(before)) if at not in lost)
        assert bool(lost) == (bool(before) and not way.endswith("at the end") and way != "doubled")


def test_a_seed_chooses_the_same_and_the_command_line_changes_no_more_than_it_says() -> None:
    for seed in range(200):
        free = choose(Random(seed), parse([]))
        assert free == choose(Random(seed), parse([]))
        fixed = choose(Random(seed), parse(["--stop", "kill", "--way", "cut"]))
        assert (fixed.stop, fixed.way) == ("kill", "cut")
        assert (fixed.nodes, fixed.second, fixed.client) == (free.nodes, free.second, free.client)


def test_files_of_both_brokers_have_kinds() -> None:
    assert kind_of("plain-1/00000000000000000150.log") == "log"
    assert kind_of("__cluster_metadata-0/00000000000000000150-0000000001.checkpoint") == "metadata snapshot"
    assert kind_of("__cluster_metadata-0/00000000000000000000.timeindex") == "index"
    assert kind_of("recovery-point-offset-checkpoint") == "checkpoint"
    assert kind_of(".lock") is None
    assert set(KINDS) >= {"log", "log of offsets", "partition.metadata"}


@pytest.mark.parametrize(
    ("number", "may_be_lost"),
    [(0, {0, 1}), (1, {0, 1, 2}), (2, {3}), (4, {4, 5})],
    ids=["a batch", "the end of a transaction", "another producer's", "the end of the second transaction"],
)
def test_one_node_may_lose_what_stood_in_the_damaged_bytes(number: int, may_be_lost: set[int]) -> None:
    assert losses([of_batch(number)], CONTENT, 1).offsets == {"txn-0": may_be_lost}


def test_a_node_that_is_alone_refuses_to_start_only_for_what_no_snapshot_has() -> None:
    path = "__cluster_metadata-0/00000000000000000000.log"
    assert losses([of_batch(2, path)], CONTENT, 1, snapshot_end=4) == Losses()
    assert losses([of_batch(3, path)], CONTENT, 1, snapshot_end=4).refusal == path


def test_three_nodes_may_lose_nothing() -> None:
    may = losses([of_batch(0), of_batch(2)], CONTENT, 3)
    assert may == Losses()


def test_a_group_may_lose_what_stood_in_its_last_commit() -> None:
    path = "__consumer_offsets-0/00000000000000000000.log"
    commits = [batch(0, 1, body=b"group plain"), batch(1, 1, body=b"other plain"), batch(2, 1, body=b"group plain")]
    assert losses([of_batch(0, path, commits)], CONTENT, 1).groups == set()
    assert losses([of_batch(1, path, commits)], CONTENT, 1).groups == set()
    may = losses([of_batch(2, path, commits)], CONTENT, 1)
    assert may.groups == {"group"}
    for answer in (-1001, 1, 2):
        assert judge(CONTENT, seen(offsets={"group": {"plain-0": answer}}), may) == {}
    assert list(judge(CONTENT, seen(offsets={"group": {"plain-0": 3}}), may)) == ["lost"]


@pytest.mark.parametrize(
    ("changed", "case"),
    [
        ({}, None),
        ({"topics": {}}, "unread"),
        ({"topics": {"other": 1}}, "lost"),
        ({"partitions": {}}, "unread"),
        ({"partitions": {"txn-0": {"records": [(0, "a"), (1, "b"), (5, "d")], "position": 6, "end": -1}}}, "lost"),
        ({"partitions": {"txn-0": {"records": [(0, "a"), (1, "b"), (3, "c")], "position": 4, "end": 4}}}, "lost"),
        (
            {"partitions": {"txn-0": {"records": [(0, "a"), (1, "b"), (3, "c")], "position": 4, "end": 6, "told": []}}},
            "unread",
        ),
        ({"offsets": {"group": {"plain-0": 1}}}, "lost"),
        ({"offsets": {"group": {"plain-0": "NOT_COORDINATOR"}}}, "unread"),
        ({"errors": ["cannot write"]}, "unread"),
        ({"late": ["all was read after 12.0 s"]}, "late"),
        ({"not in sync": ["txn-0"]}, "not in sync"),
    ],
)
def test_each_fault_has_a_case(changed: dict[str, Any], case: str | None) -> None:
    assert list(judge(CONTENT, seen(**changed), Losses())) == ([case] if case else [])


def test_what_nobody_committed_is_wrong() -> None:
    records = [*CONTENT.records["txn-0"].items()]
    for more in ((2, "x"), (0, "b"), (7, "never written")):
        state = {"records": [*records, more], "position": 8, "end": -1}
        assert "wrong" in judge(CONTENT, seen(partitions={"txn-0": state}), Losses())
    written_since = {"records": [*records, (7, "after 1")], "position": 8, "end": -1}
    assert judge(CONTENT, seen(partitions={"txn-0": written_since}), Losses()) == {}
