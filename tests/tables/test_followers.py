"""A table is paused, resumed and dropped, and tells of its follower; a log directory is followed; a quota holds."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from kbroker.tables.follower import Follower, Settings
from kbroker.tables.plan import Refused
from kbroker.tables.sources import Quota
from kbroker.tables.status import Status, describe, newest_dead_letters, read_statuses
from kbroker.testing import running_broker
from kbroker.tools.cli import main
from kbroker.tools.cli.table_state import drop, pause
from tests.patience import LONG, eventually
from tests.tables.model_topic import ModelSource, ModelTopic, check_once, dead_in, follow, rows_in, target_of
from tests.tables.test_exactly_once import FORMATS, JSON, orders


def run_until(follower: Follower, moments: list[Callable[[], None]]) -> None:
    """Run a follower; each time that it looks whether to stop, the next thing happens, and after the last it stops."""
    left = iter(moments)

    def stop() -> bool:
        moment = next(left, None)
        if moment is not None:
            moment()
        return moment is None

    follower.run(once=False, stop=stop, wait=0)


@pytest.mark.parametrize("values", [1000, 999])
def test_the_first_rows_come_before_their_time(tmp_path: Path, values: int) -> None:
    """They come as soon as all is read that the topic had, if it is enough to tell the columns; later ones wait."""
    topic, path = ModelTopic(), tmp_path / "delta"
    topic.append(0, *(b'{"id": %d}' % number for number in range(values)))
    follower = Follower(ModelSource(topic), target_of(path), Settings("json", interval=LONG))
    seen: list[int] = []
    steps: list[Callable[[], None]] = [lambda: seen.append(follower.progress.rows)] * 200
    run_until(follower, [*steps, lambda: topic.append(0, b'{"id": 1}'), *steps])
    assert seen[199] == (1000 if values == 1000 else 0), "the sample is too small"
    assert seen[-1] == 1000 and follower.progress.rows == values + 1


def test_pandas_is_left_alone() -> None:
    """``pyarrow`` would import pandas, which takes 45 MB."""
    code = "from kbroker.tools.cli.table_following import sparing\nimport sys\nwith sparing():\n"
    code += "    import kbroker.tables.follower, pyarrow.dataset\nassert 'pandas' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_pause_holds_for_followers_anywhere(tmp_path: Path, kind: str) -> None:
    """A follower that is about to commit is refused, a follower at rest sees the pause; both go on when they may."""
    topic, path = orders(), tmp_path / kind
    follow(topic, path, JSON)
    told: list[str] = []
    settings = Settings(interval=0)
    follower = Follower(ModelSource(topic), target_of(path), settings, told.append)
    rows: list[int] = []

    def count() -> None:
        target = target_of(path)
        assert target.load(topic.starts) is not None
        rows.append(target.facts().rows)

    def nothing() -> None:
        pass

    run_until(
        follower,
        [
            nothing,
            lambda: topic.append(0, b'{"id": 50}'),
            lambda: pause(target_of(path), paused=True),  # it has read the record, or is about to
            *[nothing] * 4,
            count,
            *[nothing] * 4,
            count,
            lambda: pause(target_of(path), paused=False),
            *[nothing] * 6,
        ],
    )
    assert rows[0] == rows[1] and told == [f"{follower.status.table} is paused", f"{follower.status.table} goes on"]
    check_once(topic, path)
    pause(target_of(path), paused=True)
    pause(target_of(path), paused=True)
    topic.append(0, b'{"id": 51}')
    with pytest.raises(Refused, match="kbroker table resume"):
        follow(topic, path, JSON)
    pause(target_of(path), paused=False)
    follow(topic, path, JSON)
    check_once(topic, path)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_told_of_a_table(tmp_path: Path, kind: str) -> None:
    """By the table, by its topic, and by its follower, which a kill keeps from saying that it ends."""
    topic, path = orders(), tmp_path / kind
    follow(topic, path, JSON)
    topic.append(1, b"late", b'{"id": 5}')
    told = describe(target_of(path), lambda _: ModelSource(topic), commits=3)
    assert (told["lag"], told["rows"], told["dead_letters"], told["paused"]) == (2, 17, 3, False)
    assert told["lag_seconds"] > 60 and [each["lag"] for each in told["partitions"]] == [0, 2]
    assert len(told["commits"]) == 3 and sum(each["rows"] or 0 for each in told["commits"]) > 0
    assert told["follower"]["host"] == socket.gethostname() and not told["runs"]
    assert told["follower"]["state"] == "ended" and told["follower"]["course"]
    target = target_of(path)
    target.load(topic.starts)
    last = newest_dead_letters(target.dead_letters(), 2)
    known = sorted(dead_in(path), key=lambda row: row["_timestamp"])[-2:]
    assert sorted(each["reason"] for each in last) == sorted(row["reason"] for row in known)
    status = Status(pid=2**22 + 1)
    status.failed("the disk is full")
    target.note(status.name, status.text())
    [found, _] = read_statuses(target_of(path)).values()
    assert found.error == "the disk is full" and not found.runs()
    here = Status()
    here.note_lag(1, 2.0)
    assert here.runs() and json.loads(here.text())["course"] == [[here.at, 1, 2.0]]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_is_dropped_and_nothing_else(tmp_path: Path, kind: str) -> None:
    topic, path = orders(), tmp_path / kind
    follow(topic, path, JSON)
    theirs = tmp_path / kind / "notes.txt"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("mine")
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    assert drop(target_of(path), refuse) is None
    check_once(topic, path)
    assert "17 rows in " in asked[0] and "Topic orders stays." in asked[0]
    running = Status(host="another")
    running.note_lag(0, 0.0)
    target = target_of(path)
    target.load(topic.starts)
    target.note(running.name, running.text())
    with pytest.raises(Exception, match=r"is followed by process .* on another: stop that first"):
        drop(target_of(path), lambda _: True)
    ended = Status(state="ended")
    ended.note_lag(0, 0.0)
    target.note(ended.name, ended.text())  # one that ends hides none that goes on
    with pytest.raises(Exception, match=r"is followed by process .* on another: stop that first"):
        drop(target_of(path), lambda _: True)
    target.note(running.name, None)

    def agree(question: str) -> bool:
        target.note(running.name, running.text())
        return True

    with pytest.raises(Exception, match=r"is followed by process .* on another: stop that first"):
        drop(target_of(path), agree)
    assert not target_of(path).is_paused()
    running.state = "ended"
    target.note(running.name, running.text())
    follow(topic, path, JSON)
    assert list(target_of(path).noted()) == [ended.name]
    left = drop(target_of(path), lambda _: True)
    assert left == (1 if kind == "delta" else 0) and theirs.read_text() == "mine"
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each != theirs]
    assert [each for each in files if each.name != "catalog.db"] == []
    with pytest.raises(Exception, match="there is no table"):
        drop(target_of(path), lambda _: True)
    follow(topic, path, JSON)
    check_once(topic, path)


def test_a_log_directory_is_followed(tmp_path: Path) -> None:
    """Records come while the directory is followed, up to the noted offset; a partition that comes later, too."""
    from kbroker.tables.sources import DirectorySource

    (tmp_path / "lines").write_text("".join(f"value {number}\n" for number in range(10)))
    with running_broker({"replica.high.watermark.checkpoint.interval.ms": "20"}) as broker:
        at = ["-b", broker.bootstrap_servers]

        def send() -> None:
            assert main(["produce", "lines", str(tmp_path / "lines"), *at]) == 0

        def noted(count: int) -> bool:
            file = Path(broker.data_dir) / "replication-offset-checkpoint"
            lines = file.read_text().splitlines() if file.exists() else []
            return sum(int(line.split()[2]) for line in lines if line.startswith("lines ")) == count

        assert main(["topic", "create", "lines", "-p", "1", *at]) == 0
        send()
        eventually(lambda: noted(10))
        source = DirectorySource(str(broker.data_dir), "lines")
        follower = Follower(source, target_of(tmp_path / "t"), Settings(value_format="text", interval=0))

        def widen() -> None:
            assert main(["topic", "alter", "lines", "-p", "3", *at]) == 0

        steps: Iterator[tuple[int, Callable[[], None] | None]] = iter([(10, send), (20, widen), (20, send)])
        wanted, step = next(steps)
        deadline = time.monotonic() + LONG

        def stop() -> bool:
            nonlocal wanted, step
            assert time.monotonic() < deadline
            if follower.progress.rows == 30:
                return True
            if follower.progress.rows == wanted and step is not None:
                step()
                wanted, step = next(steps, (0, None))
            return False

        follower.run(once=False, stop=stop, wait=0.01)
        assert sorted(row["value"] for row in rows_in(tmp_path / "t"))[:3] == ["value 0"] * 3
        assert describe(target_of(tmp_path / "t"), lambda _: source)["lag"] == 0


def test_a_quota_is_shared() -> None:
    now = 100.0
    quota = Quota(1000, lambda: now)
    quota.take(500)
    quota.take(1500)
    assert quota.seconds() == 2.0
    now = 101.5
    assert quota.seconds() == 0.5
    now = 200.0
    assert quota.seconds() == 0.0
    quota.take(1000)
    assert quota.seconds() == 1.0


def test_values_of_a_registry_are_known_for_what_they_are(tmp_path: Path) -> None:
    """All of them, from the first on."""
    framed = b"\0\0\0\0\1abc"
    for values, hinted in (([framed] * 9, True), ([b"{}", *[framed] * 9], False)):
        topic, told = ModelTopic(), list[str]()
        topic.append(0, *values)
        Follower(ModelSource(topic), target_of(tmp_path / str(hinted)), JSON, told.append).run(once=True)
        assert ["--value avro, protobuf or json-schema, and --registry URL" in line for line in told] == [True] * hinted


def test_a_table_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    topic = ModelTopic()
    with pytest.raises(Exception, match="there is no table"):
        describe(target_of(tmp_path / "t"), lambda _: ModelSource(topic))


def test_names_of_headers_that_are_not_utf_8(tmp_path: Path) -> None:
    """Clients may send them. They are there as Kafka's consumers show them, and nothing stops for them."""
    topic, path = ModelTopic(), tmp_path / "t"
    topic.append(0, b"a", b"b")
    topic.logs[0][1] = topic.logs[0][1]._replace(headers=(("x\udcff", b"1"), ("y", None)))
    follow(topic, path, Settings())
    assert [each["key"] for each in rows_in(path)[1]["_headers"]] == ["x\N{REPLACEMENT CHARACTER}", "y"]
