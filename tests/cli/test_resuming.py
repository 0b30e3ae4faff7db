"""Imports and replays that stop in the middle, and go on: each record is stored once."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbroker.client.records_io.sieve import Sieve
from kbroker.client.schemas.decoder import Decoded
from kbroker.client.schemas.wire_format import RegistryError
from kbroker.testing import RunningBroker
from kbroker.tools.cli.partial_file import lock
from kbroker.wire.record_batch import Record
from tests.cli_command import Result, Run
from tests.patience import eventually

COUNT = 600


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, where places are kept."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(path: Path) -> Path:
    """A file of records, every fifth of which has no key."""
    rows = [{"key": None if n % 5 == 0 else f"k{n % 40}", "value": f"value {n}"} for n in range(COUNT)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def values(kb: Run, topic: str) -> list[str]:
    return [str(record["value"]) for record in kb("consume", topic, "--json").json_lines]


def in_order(kb: Run, topic: str) -> bool:
    """Whether records of a key are in the order of the file."""
    last: dict[str, int] = {}
    for record in kb("consume", topic, "--json").json_lines:
        key, number = record["key"], int(record["value"].split()[1])
        if key is not None and last.setdefault(key, -1) >= number:
            return False
        if key is not None:
            last[key] = number
    return True


def place_in(told: Result) -> Path:
    found = re.search(r"to go on where it stopped, give the same command with --resume (\S+)$", told.err, re.MULTILINE)
    assert found is not None, told.err
    return Path(found[1])


def await_silence(broker: RunningBroker) -> None:
    """Wait until the broker has come to the end of all that was sent to it, by clients that do not wait any longer."""
    eventually(lambda: not broker.in_broker(lambda node: any(server.connections for server in node.listeners)))


WORDS = ("--batch-bytes", "2000", "--timeout", "120")


@pytest.fixture
def stopping(kb: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command for a copy whose time is over after a few tries, each of which has all the time that it needs.

    Its clock goes ahead by half a minute where it pauses before the next try.
    """

    def run(*words: str) -> Result:
        paused = 0.0

        def pause(seconds: float) -> None:
            nonlocal paused
            paused += 30

        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + paused, sleep=pause)
        with monkeypatch.context() as patched:
            for module in ("cluster", "producer"):
                patched.setattr(f"kbroker.client.{module}.time", clock)
            return kb(*words, code=1)

    return run


@pytest.mark.parametrize("command", ["import", "replay"])
def test_a_copy_goes_on_and_stores_nothing_twice(
    kb: Run, stopping: Run, broker: RunningBroker, here: Path, command: str
) -> None:
    source = f"{command}-source"
    target = f"{command}-target"
    for name in (source, target):
        kb("topic", "create", name, "-p", "3")
    file = lines(here / "records.jsonl")
    kb("import", source, str(file), "-q")
    words = (command, *((target, str(file)) if command == "import" else (source, target)), *WORDS)

    # One partition takes nothing: the others are ahead of it when its time is over.
    with broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic=target, partition=1):
        told = stopping(*words)
    assert "NOT_ENOUGH_REPLICAS" in told.err and 0 < len(values(kb, target)) < COUNT
    place = place_in(told)
    # Nobody hears that something is stored.
    with broker.faults.drop("Produce", when="after", topic=target):
        told = stopping(*words, "--resume", str(place), "--json")
    assert told.json["stored"] == 0 and told.json["unknown"] > 0 and told.json["resume"] == str(place)
    assert place_in(told) == place
    before = len(values(kb, target))
    told = kb(*words, "--resume", str(place), "--json")
    stored = values(kb, target)
    assert len(stored) > before and sorted(stored) == sorted(f"value {n}" for n in range(COUNT))
    assert command == "replay" or in_order(kb, target)
    assert not place.exists()


def test_a_place_is_of_one_copy(kb: Run, stopping: Run, broker: RunningBroker, here: Path) -> None:
    for name in ("one", "two"):
        kb("topic", "create", name, "-p", "1")
    file = lines(here / "x.jsonl")
    with broker.faults.drop("Produce", topic="one"):
        place = place_in(stopping("import", "one", str(file), *WORDS))
        assert place == Path("kbroker-import-one.place")
        assert place_in(stopping("import", "one", str(file), *WORDS)) == Path("kbroker-import-one-1.place")
        await_silence(broker)  # nobody goes on from this place: what is heard of it later would be there twice
    resumed = ("--resume", str(place))
    told = kb("import", "two", str(file), *resumed, code=1).err
    assert told == f"kbroker: {place} is the place of another copy: import x.jsonl into one\n"
    assert "leave out --acks" in kb("import", "one", str(file), *resumed, "--acks", "1", code=1).err
    assert "cannot read nowhere: No such file" in kb("import", "one", str(file), "--resume", "nowhere", code=1).err
    Path("bad").write_text('{"task": "import x.jsonl into one"}')
    assert "bad: it is no place at which a copy" in kb("import", "one", str(file), "--resume", "bad", code=1).err
    short = here / "shorter" / "x.jsonl"
    short.parent.mkdir()
    short.write_text('{"value": "value 0"}\n')
    told = kb("import", "one", str(short), *resumed, *WORDS, code=1).err
    assert "records that may have been stored did not come again" in told
    assert place_in(kb("import", "one", str(short), *resumed, *WORDS, code=1)) == place
    kb("import", "one", str(file), *resumed, "-q")
    assert sorted(values(kb, "one")) == sorted(f"value {n}" for n in range(COUNT))
    kb("topic", "delete", "one", "--yes")
    kb("topic", "create", "one", "-p", "1")
    other = ("--resume", "kbroker-import-one-1.place")
    assert "it was made anew since" in kb("import", "one", str(file), *other, code=1).err


def test_a_place_of_a_replay_is_of_the_topic_that_was_read(
    kb: Run, stopping: Run, broker: RunningBroker, here: Path
) -> None:
    for name in ("read", "written"):
        kb("topic", "create", name, "-p", "1")
    kb("import", "read", str(lines(here / "x.jsonl")), "-q")
    with broker.faults.drop("Produce", topic="written"):
        place = place_in(stopping("replay", "read", "written", *WORDS))
    resumed = ("replay", "read", "written", "--resume", str(place))
    whole = place.read_text()
    place.write_text(json.dumps(json.loads(whole) | {"next": {}}))
    assert "it is no place at which a replay has stopped" in kb(*resumed, code=1).err
    place.write_text(whole)
    kb("topic", "delete", "read", "--yes")
    kb("topic", "create", "read", "-p", "1")
    assert "topic read is another than that of" in kb(*resumed, code=1).err


def test_a_place_is_of_one_process(kb: Run, stopping: Run, broker: RunningBroker, here: Path) -> None:
    kb("topic", "create", "held", "-p", "1")
    words = ("import", "held", str(lines(here / "x.jsonl")), *WORDS)
    with broker.faults.drop("Produce", topic="held"):
        place = place_in(stopping(*words))
    with place.open("rb") as held:
        lock(held.fileno())
        told = kb(*words, "--resume", str(place), code=1).err
    assert told == f"kbroker: another process goes on from {place}\n"
    before = place.stat().st_mtime - 90_000
    os.utime(place, (before, before))
    told = kb(*words, "--resume", str(place), "-q").err
    assert "is more than a day old" in told and "records may be stored twice if brokers have forgotten" in told


def test_a_place_that_cannot_be_written(kb: Run, stopping: Run, broker: RunningBroker, here: Path) -> None:
    kb("topic", "create", "full", "-p", "1")
    (here / "kbroker-import-full.place.partial").mkdir()
    with broker.faults.drop("Produce", topic="full"):
        told = stopping("import", "full", str(lines(here / "x.jsonl")), *WORDS, "--json")
    assert told.json["resume"] is None and told.json["unknown"] > 0, "the summary is there all the same"
    assert "cannot write kbroker-import-full.place: " in told.err and "the place where it stopped is lost" in told.err
    assert not list(here.glob("*.place"))


def test_a_replay_whose_schema_registry_is_gone_keeps_its_place(
    kb: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("decoded", "decoded-again"):
        kb("topic", "create", name, "-p", "1")
    kb("import", "decoded", str(lines(here / "x.jsonl")), "-q")
    whole = Sieve.sift

    def broken(sieve: Sieve, partition: int, record: Record) -> Decoded | None:
        if record.offset == 300:
            raise RegistryError("the registry does not answer")
        return whole(sieve, partition, record)

    words = ("replay", "decoded", "decoded-again", "--filter", "value")
    with monkeypatch.context() as patched:
        patched.setattr(Sieve, "sift", broken)
        told = kb(*words, code=1)
    assert told.out.startswith("300 of 301 records") and "the registry does not answer" in told.err
    kb(*words, "--resume", str(place_in(told)), "-q")
    assert values(kb, "decoded-again") == [f"value {n}" for n in range(COUNT)]


def test_without_producer_ids_it_is_told_what_may_come_twice(
    kb: Run, stopping: Run, broker: RunningBroker, here: Path
) -> None:
    kb("topic", "create", "plain", "-p", "1")
    words = ("import", "plain", str(lines(here / "x.jsonl")), "--no-idempotence", *WORDS)
    with broker.faults.drop("Produce", when="after", topic="plain"):
        told = stopping(*words).err
    found = re.search(r"--resume (\S+); (\d+) records may be stored twice then", told)
    assert found is not None, told
    kb(*words, "--resume", found[1], "-q")
    stored = values(kb, "plain")
    assert set(stored) == {f"value {n}" for n in range(COUNT)} and len(stored) > COUNT


def test_a_file_that_cannot_be_read_on(kb: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from kbroker.client.records_io.parquet_records import ParquetRecords
    from kbroker.errors import FatalError

    kb("topic", "create", "rows", "-p", "1")
    kb("import", "rows", str(lines(here / "x.jsonl")), "-q")
    kb("export", "rows", "x.parquet", "-q")
    kb("topic", "create", "again", "-p", "1")
    whole: Callable[[ParquetRecords], object] = ParquetRecords.__iter__

    def broken(records: ParquetRecords) -> object:
        for item in whole(records):  # type: ignore[attr-defined]
            if item.line > 300:
                raise FatalError("cannot read x.parquet: the disk is gone")
            yield item

    with monkeypatch.context() as patched:
        patched.setattr(ParquetRecords, "__iter__", broken)
        told = kb("import", "again", "x.parquet", code=1)
    assert told.out.startswith("300 records to again") and "the disk is gone" in told.err
    kb("import", "again", "x.parquet", "--resume", str(place_in(told)))
    assert values(kb, "again") == [f"value {n}" for n in range(COUNT)]
