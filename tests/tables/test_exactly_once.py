"""Each record of a topic is in its table once, wherever a follower is killed and however many there are."""

from __future__ import annotations

import importlib.util
import itertools
import json
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake")

from kbroker.client.errors import ResponseError
from kbroker.errors import FatalError
from kbroker.tables.follower import Follower, Settings
from kbroker.tables.plan import Refused
from tests.patience import LONG
from tests.tables.model_topic import Killed, ModelSource, ModelTopic, check_once, dead_in, follow, rows_in, target_of
from tests.with_each import examples

needs_iceberg = pytest.mark.skipif(importlib.util.find_spec("pyiceberg") is None, reason="pyiceberg is not installed")

JSON = Settings(value_format="json", batch_records=7, max_bytes=1)
"""Rows are committed as soon as there are some."""


def orders() -> ModelTopic:
    """Two partitions with values that are good, bad and wider than those before."""
    topic = ModelTopic()
    topic.append(0, *(b'{"id": %d}' % number for number in range(8)), gap=1)
    topic.append(1, b"none", b'{"id": 1}', b'{"id": "x"}', *(b'{"id": 2, "new": {"a": [1]}}' for _ in range(5)))
    topic.append(0, b"{", *(b'{"id": %d, "new": {"b": true}}' % number for number in range(3)), gap=1)
    return topic


FORMATS = ["delta", pytest.param("iceberg", marks=needs_iceberg)]
EITHER = ["delta", pytest.param("iceberg", marks=[needs_iceberg, pytest.mark.everything])]
"""Of what `test_any_topic_any_kills` has of both formats."""


def kill_at(moment: int) -> Callable[[int], None]:
    """Kills at one moment."""

    def at(now: int) -> None:
        if now == moment:
            raise Killed

    return at


@pytest.mark.parametrize("kind", EITHER)
def test_killed_at_every_step(tmp_path: Path, kind: str) -> None:
    topic = orders()
    for moment in itertools.count(1):
        path = tmp_path / f"{kind}{moment}"
        try:
            follow(topic, path, JSON, kill_at(moment))
        except Killed:
            follow(topic, path, JSON)
            check_once(topic, path)
            continue
        break
    assert moment > 12, "each commit has two moments, with dead letters four"


def test_killed_again_and_again(tmp_path: Path) -> None:
    """A follower that lives for one commit only gets to the end, too."""
    topic, path = orders(), tmp_path / "t"
    lives = 0
    for lives in itertools.count(1):
        try:
            follow(topic, path, JSON, kill_at(3 if lives % 2 else 4))
        except Killed:
            continue
        break
    check_once(topic, path)
    assert lives > 3


@pytest.mark.parametrize("kind", FORMATS)
def test_a_follower_alone_meets_no_conflict(tmp_path: Path, kind: str) -> None:
    """Also not with itself, after a commit without rows, such as that of a marker alone."""
    topic, path = orders(), tmp_path / kind

    def more(moment: int) -> None:
        if moment in (8, 12):
            topic.append(0, b'{"id": 9}', b"bad", gap=2)

    found = follow(topic, path, Settings(value_format="json", interval=0), more)
    check_once(topic, path)
    assert found.progress.conflicts == 0 and found.progress.commits > 5


def test_how_far_it_is_is_told_now_and_then(tmp_path: Path) -> None:
    """A look at the clock takes a second here, and some looks are a commit; a line comes after ten seconds."""
    topic = orders()
    shown: list[str] = []
    follower = Follower(
        ModelSource(topic), target_of(tmp_path / "t"), JSON, clock=itertools.count().__next__, show=shown.append
    )
    follower.run(once=True)
    where = f"orders to delta:{tmp_path / 't'}"
    assert shown[0] == f"following {where}: partitions 0 from 0, 1 from 0"
    assert all(f" of {where}, lag " in line for line in shown[1:])
    assert 1 < len(shown) - 1 < follower.progress.commits


@pytest.mark.parametrize("kind", FORMATS)
def test_dead_letters_that_are_far_ahead(tmp_path: Path, kind: str) -> None:
    """They are known until the table gets there, though others are committed before that."""
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0)
    topic.append(1, *[b"bad"] * 30)
    with pytest.raises(Killed):  # with all dead letters, before the table has anything
        follow(topic, path, Settings(value_format="json"), kill_at(4))
    topic.append(0, b"bad")
    with pytest.raises(Killed):  # after a commit of both partitions that ends within them
        follow(topic, path, Settings(value_format="json", batch_records=8, max_bytes=1), kill_at(4))
    follow(topic, path, Settings())
    check_once(topic, path)


@pytest.mark.parametrize("kind", [pytest.param("iceberg", marks=pytest.mark.everything), "delta"])
def test_another_follower_at_every_step(tmp_path: Path, kind: str) -> None:
    """Between any two steps of a follower another one does all that there is, or a part of it."""
    for moment in itertools.count(1):
        for part in (None, 2) if kind == "delta" else (None,):
            topic, path = orders(), tmp_path / f"{kind}{moment}_{part}"

            def other(
                now: int, at: int = moment, topic: ModelTopic = topic, path: Path = path, part: int | None = part
            ) -> None:
                if now == at:
                    topic.append(0, b'{"id": 77, "late": 1}', b"late")
                    try:
                        follow(topic, path, JSON, kill_at(part or 0))
                    except Killed:
                        topic.append(1, b'{"id": 78}')

            found = follow(topic, path, JSON, other)
            follow(topic, path, JSON)
            check_once(topic, path)
        if not any(row.get("late") for row in rows_in(path)):
            break
    assert moment > 12 and found.progress.conflicts == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_followers_of_different_partitions_do_not_hide_each_other(tmp_path: Path, kind: str) -> None:
    """A commit is not refused for a partition that is not in it; the next one knows what has moved."""
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, b"a")
    topic.append(1)
    follow(topic, path, Settings())

    def other(now: int) -> None:
        if now == 1:  # before the first commit, which is of partition 0
            only = ModelTopic(logs={1: topic.logs[1]}, starts={1: 0}, ends={1: topic.ends[1]})
            follow(only, path, Settings())

    topic.append(0, *[b"b"] * 20)
    topic.append(1, *[b"c"] * 20)
    follow(topic, path, Settings(batch_records=10, max_bytes=1), other)
    check_once(topic, path)


ODD = [
    *(b"", b" ", b"{}", b"null", b"[1]", b'{"a":1} {"a":2}', b'{"a":1},"v":{"a":2}', b'{"a":1}}\n{"v":{"a":2}'),
    *(b'{"a":1', b'"b":2}', b'{"a":1e400}', b'{"a":NaN}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":1,"a":2}'),
    *(b'{"a":01}', b'{"a":12345678901234567890}', b'{"a":{"b":[{"c":1}]}}', b'{"a":{"b":[{"c":1,"d":"x"}]}}'),
    *(
        b'{"a\\u0000b":1}',
        b'{"\\ud800":1}',
        b'{"":1}',
        b'{"_offset":1}',
        b'{"A":1}',
        b'{"x y":1}',
        b'{"a":\n1}',
        b'{"a":1}\n',
    ),
]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False), st.text(max_size=3)
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from("abc") | st.text(max_size=3)
DOCUMENTS = st.dictionaries(NAMES, NESTED, max_size=3).map(lambda each: json.dumps(each).encode())
VALUES = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from(ODD), DOCUMENTS)


def same(wanted: object, found: object) -> bool:
    """Whether a column has what a field of JSON had. An empty list or object of nobody knows what is null."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(same(wanted.get(name), found.get(name)) for name in {*wanted, *found})
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same, wanted, found))
    if found is None:
        return not _has_content(wanted)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    return wanted == found


def _has_content(wanted: object) -> bool:
    if isinstance(wanted, dict):
        return any(map(_has_content, wanted.values()))
    if isinstance(wanted, list):
        return any(map(_has_content, wanted))
    return wanted is not None


@settings(max_examples=examples(40))
@example([(0, [b'{"\\ud800":0}'], 0)], [], "json", 1, "delta")
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(VALUES, max_size=30), st.integers(0, 1)), min_size=1, max_size=5),
    st.lists(st.integers(1, 9), max_size=4),
    st.sampled_from(["bytes", "text", "json"]),
    st.integers(1, 40),
    st.sampled_from(["delta", "iceberg"] if importlib.util.find_spec("pyiceberg") else ["delta"]),
)
def test_any_topic_any_kills(
    appends: list[tuple[int, list[bytes | None], int]], kills: list[int], value_format: str, batch: int, kind: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        topic, path = ModelTopic(), Path(directory) / kind
        topic.append(0)
        given_settings = Settings(value_format=value_format, batch_records=batch, max_bytes=2000)
        for index, (partition, values, gap) in enumerate(appends):
            topic.append(partition, *values, gap=gap)
            try:
                follow(topic, path, given_settings, kill_at(kills[index] if index < len(kills) else 0))
            except Killed:
                pass
        follow(topic, path, given_settings)
        check_once(topic, path)
        by_place = {(partition, each.offset): each.value for partition, log in topic.logs.items() for each in log}
        for row in rows_in(path):
            value = by_place[row["_partition"], row["_offset"]]
            fields = {name: each for name, each in row.items() if not name.startswith("_")}
            if value_format == "json":
                assert same(json.loads(value or b"null") or {}, fields)
            else:
                assert fields["value"] == (value.decode() if value is not None and value_format == "text" else value)


@needs_iceberg
def test_tables_of_a_catalog_that_is_not_there_yet(tmp_path: Path) -> None:
    """Several followers begin at the same moment: one of them makes the file's own tables, and the namespace."""
    topic = ModelTopic()
    topic.append(0, b"a")
    for number in range(3):
        paths = [tmp_path / str(number) / name for name in ("iceberg1", "iceberg2", "iceberg2")]
        together = threading.Barrier(len(paths))

        def begin(path: Path, together: threading.Barrier = together) -> None:
            together.wait()
            follow(topic, path, Settings())

        with ThreadPoolExecutor() as threads:
            list(threads.map(begin, paths))
        for path in paths:
            check_once(topic, path)


# --- What cannot go on by itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_that_was_made_anew(tmp_path: Path, kind: str) -> None:
    old, path = ModelTopic(), tmp_path / kind
    old.append(0, *[b"old"] * 5)
    follow(old, path, Settings())
    new = ModelTopic(topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    new.append(0, b"new", b"new")
    with pytest.raises(Refused, match=r"was deleted and made anew .* --new-topic"):
        follow(new, path, Settings())
    assert len(rows_in(path)) == 5
    for moment in (1, 2, 3, 4, 0):
        try:
            follow(new, path, Settings(new_topic=True), kill_at(moment))
        except Killed:
            continue
    follow(new, path, Settings())
    assert [row["value"] for row in rows_in(path)].count(b"new") == 2 and len(rows_in(path)) == 7
    with pytest.raises(Refused, match="was deleted and made anew"):
        follow(old, path, Settings())


@pytest.mark.parametrize("kind", FORMATS)
def test_records_that_retention_took_first(tmp_path: Path, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, *[b"a"] * 5)
    follow(topic, path, Settings())
    topic.append(0, *[b"b"] * 10)
    topic.delete_before(0, 9)
    with pytest.raises(Refused, match="offsets 5 to 8 were gone before the table had them; --accept-loss"):
        follow(topic, path, Settings())
    for moment in (1, 2, 3, 0):
        try:
            follow(topic, path, Settings(accept_loss=True), kill_at(moment))
        except Killed:
            continue
    assert [row["_offset"] for row in rows_in(path)] == [0, 1, 2, 3, 4, *range(9, 15)]
    [note] = dead_in(path)
    assert (note["_offset"], note["value"]) == (5, None) and "5 to 8 were gone" in note["reason"]


def test_records_that_retention_takes_while_it_follows(tmp_path: Path) -> None:
    topic = ModelTopic()
    topic.append(0, *[b"a"] * 30)

    def retention(now: int) -> None:
        if now == 4:
            topic.delete_before(0, 25)

    quick = Settings(batch_records=1, max_bytes=1)
    with pytest.raises(Refused, match="offsets 7 to 24 were gone"):
        follow(topic, tmp_path / "t", quick, retention)
    assert [row["_offset"] for row in rows_in(tmp_path / "t")] == list(range(7))
    follow(topic, tmp_path / "t", Settings(accept_loss=True))
    assert [row["_offset"] for row in rows_in(tmp_path / "t")] == [*range(7), *range(25, 30)]


def test_a_topic_that_is_made_anew_while_it_is_read(tmp_path: Path) -> None:
    """Records of the new topic are not committed as the old one's, also where memory is full."""
    topic = ModelTopic()
    topic.append(0, *[b"a"] * 30)

    def anew(now: int) -> None:
        if now == 4:
            topic.topic_id = "AAAAAAAAAAAAAAAAAAAAAg"

    with pytest.raises(FatalError, match="was deleted and made anew"):
        follow(topic, tmp_path / "t", Settings(batch_records=1, max_bytes=1), anew)
    assert len(rows_in(tmp_path / "t")) == 7


def wait() -> None:
    """Let a follower go on."""


def follow_while(topic: ModelTopic, path: Path, moments: list[Callable[[], None]]) -> None:
    """Follow, and let one thing after the other happen between two reads."""
    left = iter(moments)

    def stop() -> bool:
        next(left, wait)()
        return False

    Follower(ModelSource(topic), target_of(path), Settings(interval=LONG)).run(once=False, stop=stop, wait=0)


@pytest.mark.parametrize("while_it_runs", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_that_ends_before_the_table(tmp_path: Path, kind: str, while_it_runs: bool) -> None:
    """It is refused also when it is longer again, until a person says otherwise."""
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, *[b"a"] * 5)
    cut = partial(topic.cut, 0, 3)
    if not while_it_runs:
        follow(topic, path, Settings())
        cut()
    with pytest.raises(Refused, match="up to offset 5, but topic orders ends at 3"):
        follow_while(topic, path, [wait, wait, wait, cut])
    topic.append(0, *[b"b"] * 9)
    with pytest.raises(Refused, match="is paused: kbroker table resume lets rows in again"):
        follow(topic, path, Settings())
    target_of(path).pause(paused=False)
    follow(topic, path, Settings())
    assert [row["_offset"] for row in rows_in(path)] == list(range(12))


def test_a_topic_that_is_cut_behind_the_table_is_gone_on_with(tmp_path: Path) -> None:
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, *[b"a"] * 7)
    more, cut = partial(topic.append, 0, *[b"b"] * 7), partial(topic.cut, 0, 9)
    with pytest.raises(ResponseError):
        follow_while(topic, path, [wait, wait, wait, more, wait, cut])
    assert len(rows_in(path)) == 7
    topic.append(0, *[b"c"] * 7)
    follow(topic, path, Settings())
    check_once(topic, path)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_partition_that_was_added(tmp_path: Path, kind: str) -> None:
    topic, path = ModelTopic(), tmp_path / kind
    topic.append(0, b"a")

    def add(now: int) -> None:
        if now == 3 and 1 not in topic.logs:
            topic.append(1, b"b", b"c")

    follow(topic, path, Settings(), add)
    follow(topic, path, Settings())
    check_once(topic, path)


def test_another_topic_or_format(tmp_path: Path) -> None:
    topic = ModelTopic()
    topic.append(0, b"a")
    follow(topic, tmp_path / "t", Settings())
    with pytest.raises(Refused, match="has its values as bytes"):
        follow(topic, tmp_path / "t", Settings(value_format="json"))
    other = ModelTopic("payments")
    other.append(0, b"a")
    with pytest.raises(Refused, match="is the table of topic orders: name another place for payments"):
        follow(other, tmp_path / "t", Settings())


def test_what_somebody_else_wrote(tmp_path: Path) -> None:
    """Rows of others are none of its business; columns of others may be there; its own must stay as they are."""
    import pyarrow
    from deltalake import DeltaTable, write_deltalake

    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, b'{"id": 1}')
    follow(topic, path, JSON)
    write_deltalake(str(path), pyarrow.table({"id": [9], "theirs": [1.5]}), mode="append", schema_mode="merge")
    DeltaTable(str(path)).optimize.compact()
    topic.append(0, b'{"id": 2}')
    follow(topic, path, JSON)
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["theirs"]) for row in rows if row["theirs"] is None) == [(1, None), (2, None)]
    short = {"short": pyarrow.array([1], pyarrow.int16())}
    write_deltalake(str(path), pyarrow.table(short), mode="append", schema_mode="merge")
    topic.append(0, b'{"id": 5, "short": 1.7}')
    follow(topic, path, JSON)
    [dead] = dead_in(path)
    assert dead["reason"].startswith("short: there is a column of this name")
    bare = {"_partition": pyarrow.array([0], pyarrow.int32())}
    write_deltalake(str(path), pyarrow.table(bare), mode="overwrite", schema_mode="overwrite")
    topic.append(0, b'{"id": 3}')
    with pytest.raises(Refused, match=r"somebody has changed the columns .*: _offset is gone"):
        follow(topic, path, JSON)
    write_deltalake(str(tmp_path / "foreign"), pyarrow.table({"a": [1]}))
    with pytest.raises(Refused, match="none that kbroker made"):
        follow(topic, tmp_path / "foreign", JSON)


def test_identifiers_are_kept_over_checkpoints_and_must_not_be_forgotten(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, b"0")
    topic.append(1, b"1")
    for number in range(12):
        topic.append(0, b"%d" % number)
        follow(topic, path, Settings())
    DeltaTable(str(path)).create_checkpoint()
    for each in (path / "_delta_log").glob("*.json"):
        if int(each.stem) < 12:
            each.unlink()
    follow(topic, path, Settings())
    check_once(topic, path)
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    DeltaTable(str(path)).alter.set_table_properties(forgets, raise_if_not_exists=False)
    with pytest.raises(Refused, match="by which it forgets how far it is"):
        follow(topic, path, Settings())


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    topic = ModelTopic()
    topic.append(0, b"a")
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match="file"):
        follow(topic, tmp_path / "file", Settings())
