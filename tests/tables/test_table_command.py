"""``kbroker table`` against a node, with a stock producer, and killed with SIGKILL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import RunningBroker
from tests.cli_command import Run
from tests.patience import LONG, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
deltalake: Any = pytest.importorskip("deltalake")
pyarrow: Any = pytest.importorskip("pyarrow")


def send(broker: RunningBroker, topic: str, values: list[str], *, end: str = "commit") -> None:
    """Send values in one transaction of a stock producer, which is committed, aborted or left."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k{number}", partition=number % 2, headers={"n": str(number)})
    producer.flush(LONG)
    if end == "commit":
        producer.commit_transaction(LONG)
    elif end == "abort":
        producer.abort_transaction(LONG)


def table_of(path: Path) -> Any:
    return deltalake.DeltaTable(str(path)).to_pyarrow_table()


def test_a_topic_becomes_a_table(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    to = f"delta:{path}"
    kb("topic", "create", "orders", "-p", "2")
    send(broker, "orders", [json.dumps({"id": number, "to": {"city": "Bern"}}) for number in range(100)])
    send(broker, "orders", [json.dumps({"id": -1})] * 10, end="abort")
    told = kb("table", "follow", "orders", "--to", to, "--value", "json", "--once", "--json").json
    assert (told["rows"], told["dead_letters"], told["lag"]) == (100, 0, 0)
    rows = table_of(path)
    assert rows.column_names == ["_partition", "_offset", "_timestamp", "_key", "_headers", "id", "to"]
    assert sorted(rows["id"].to_pylist()) == list(range(100))
    [first] = [row for row in rows.to_pylist() if row["id"] == 0]
    assert (first["_key"], first["_headers"]) == (b"k0", [{"key": "n", "value": b"0"}])
    send(broker, "orders", ["broken", json.dumps({"id": 100, "paid": True})])
    send(broker, "orders", [json.dumps({"id": -2})], end="leave")
    found = kb("table", "follow", "orders", "--to", to, "--once")
    assert found.out.startswith(f"1 row, 1 dead letter of orders to {to} in ") and found.err == ""
    assert table_of(path)["paid"].to_pylist().count(True) == 1
    [dead] = table_of(tmp_path / "orders_dead_letters").to_pylist()
    assert (dead["value"], dead["reason"]) == (b"broken", "not JSON: Expecting value: line 1 column 1 (char 0)")
    told = kb("table", "describe", to, "--json").json
    assert (told["topic"], told["value"], told["rows"], told["dead_letters"]) == ("orders", "json", 101, 1)
    assert told["lag"] == sum(each["lag"] for each in told["partitions"]) == 1  # of the transaction that is open
    assert "dead letters  1\n" in kb("table", "describe", to).out
    assert "2 merged files, 1 new file, 0 removed files" in kb("table", "maintain", to).out
    assert kb("table", "describe", to, "--json").json["files"] == 1
    kb("topic", "delete", "orders", "--yes")
    kb("topic", "create", "orders", "-p", "2")
    refused = kb("table", "follow", "orders", "--to", to, "--once", code=1)
    assert "topic orders was deleted and made anew" in refused.err and "--new-topic" in refused.err


def test_numbers_that_no_double_is(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    """Infinite, or whole and not held exactly: in a column, in a list, in an object."""
    kb("topic", "create", "doubles", "-p", "2")
    (tmp_path / "schema").write_text('{"x": "double", "many": ["double"], "in": {"x": "double"}}')
    good = [f'{{"x": {x}}}' for x in ("1", "-2.5", "1e300", "9007199254740994", "-1e18", "100000000000000000000")]
    good += ['{"many": [1, null, 1e20], "in": {"x": 1e99}}', "{}"]
    bad = [f'{{"x": {x}}}' for x in ("1e400", "-1e400", "99999999999999999999", "-9007199254740993", "1" + "0" * 400)]
    bad += ['{"many": [1, 9007199254740993]}', '{"in": {"x": 1e400}}', '{"x": NaN}']
    send(broker, "doubles", good)
    send(broker, "doubles", bad)
    words = ("table", "follow", "doubles", "--to", f"delta:{tmp_path / 'd'}", "--once", "--json")
    told = kb(*words, "--schema", str(tmp_path / "schema")).json
    assert (told["rows"], told["dead_letters"]) == (len(good), len(bad))
    found = [each for each in table_of(tmp_path / "d")["x"].to_pylist() if each is not None]
    assert sorted(found) == [-1e18, -2.5, 1, 9007199254740994, 1e20, 1e300]
    dead = table_of(tmp_path / "d_dead_letters").to_pylist()
    reasons = {each["value"].decode(): each["reason"] for each in dead}
    exactly, large = "is a whole number that double does not hold exactly", "a number that is too large for double"
    assert [reasons[each] for each in bad] == [
        *[f"x: {large}"] * 2,
        f"x: 99999999999999999999 {exactly}",
        f"x: -9007199254740993 {exactly}",
        f"x: {large}",
        f"many[]: 9007199254740993 {exactly}",
        f"in.x: {large}",
        "not JSON: NaN is no number of JSON",
    ]


def test_a_value_that_does_not_fit_takes_none_beside_it_along(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    """With a declared schema, whose values are looked at one by one once one is bad."""
    kb("topic", "create", "beside", "-p", "2")
    kinds = {"i": "int", "l": "long", "d": "double", "s": "string", "b": "boolean", "many": ["string"]}
    (tmp_path / "schema").write_text(json.dumps(kinds))
    good = json.dumps({"i": 1, "l": 2, "d": 2.5, "s": "x", "b": True, "many": ["y"]})
    send(broker, "beside", [good, good, "broken", good])
    words = ("table", "follow", "beside", "--to", f"delta:{tmp_path / 't'}", "--once", "--json")
    told = kb(*words, "--schema", str(tmp_path / "schema")).json
    assert (told["rows"], told["dead_letters"]) == (3, 1)


@pytest.mark.parametrize("quiet", [False, True])
def test_how_far_it_is_and_a_topic_that_goes(kb: Run, broker: RunningBroker, tmp_path: Path, quiet: bool) -> None:
    topic = f"going-{quiet}"
    path = tmp_path / "going"
    kb("topic", "create", topic, "-p", "2")
    words = [sys.executable, "-m", "kbroker", "table", "follow", topic, "--to", f"delta:{path}", "--every", "10ms"]
    words += ["-b", broker.bootstrap_servers, *(["--quiet"] if quiet else [])]
    follower = subprocess.Popen(
        words, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE, text=True
    )
    try:
        send(broker, topic, ["a", "b", "c"])
        eventually(lambda: (path / "_delta_log").exists() and table_of(path).num_rows == 3)
        kb("topic", "delete", topic, "--yes")
        _, said = follower.communicate(timeout=2 * LONG)
    finally:
        follower.kill()
    *shown, deleted = said.splitlines()
    assert follower.returncode == 1 and deleted.startswith(f"kbroker: topic {topic} was deleted; the table keeps ")
    assert "--new-topic" in deleted and table_of(path).num_rows == 3
    if quiet:
        assert shown == []
    else:
        assert shown[0] == f"kbroker: following {topic} to delta:{path}: partitions 0 from 0, 1 from 0"
        assert f" of {topic} to delta:{path}, lag " in shown[1]


@pytest.mark.everything
def test_killed_at_any_time(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    """A process that is killed in the middle, several times, while a producer goes on."""
    path = tmp_path / "numbers"
    kb("topic", "create", "numbers", "-p", "2")
    words = [sys.executable, "-m", "kbroker", "table", "follow", "numbers", "--to", f"delta:{path}"]
    words += ["-b", broker.bootstrap_servers, "--value", "json", "--every", "10ms", "--memory", "1"]
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    sent = 0
    for life in range(4):
        follower = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
        seen = len(list(path.glob("*.parquet")))
        while len(list(path.glob("*.parquet"))) < seen + 2:  # it is in the middle of its commits
            assert follower.poll() is None
            for _ in range(200):
                producer.produce("numbers", json.dumps({"n": sent} if sent % 50 else [sent]), partition=sent % 2)
                sent += 1
            producer.flush(LONG)
        follower.send_signal(signal.SIGTERM if life == 3 else signal.SIGKILL)
        assert follower.wait(2 * LONG) == (0 if life == 3 else -signal.SIGKILL)
    kb("table", "follow", "numbers", "--to", f"delta:{path}", "--once")
    assert sorted(table_of(path)["n"].to_pylist()) == [number for number in range(sent) if number % 50]
    dead = table_of(tmp_path / "numbers_dead_letters")["value"].to_pylist()
    assert sorted(json.loads(value)[0] for value in dead) == list(range(0, sent, 50))


def test_a_log_directory_first(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    """A table is filled from files, up to what the node has noted as committed, and followed on from the cluster."""
    to = f"delta:{tmp_path / 'files'}"
    kb("topic", "create", "files", "-p", "2")
    send(broker, "files", [f"value {number}" for number in range(50)])
    checkpoint = Path(broker.data_dir) / "replication-offset-checkpoint"
    noted = {"files 0 26", "files 1 26"}
    eventually(lambda: checkpoint.exists() and noted <= set(checkpoint.read_text().splitlines()))
    told = kb(
        "table", "backfill", "files", "--from", str(broker.data_dir), "--to", to, "--value", "text", "--json"
    ).json
    assert (told["rows"], told["lag"]) == (50, 0)
    send(broker, "files", ["one more"])
    assert kb("table", "follow", "files", "--to", to, "--once", "--json").json["rows"] == 1
    assert sorted(table_of(tmp_path / "files")["value"].to_pylist())[0] == "one more"
    [segment] = sorted((Path(broker.data_dir) / "files-1").glob("*.log"))
    copy = tmp_path / "copy" / "files-1"
    shutil.copytree(segment.parent, copy)
    shutil.copy(checkpoint, tmp_path / "copy")
    damaged = bytearray(segment.read_bytes())
    damaged[80] ^= 1
    (copy / segment.name).write_bytes(damaged)
    words = ("table", "backfill", "files", "--from", str(tmp_path / "copy"), "--to", f"delta:{tmp_path / 'damaged'}")
    assert "kbroker scrub tells more" in kb(*words, code=1).err
    wrong = ("table", "backfill", "other", "--from", str(broker.data_dir), "--to", to)
    assert "there is no topic other" in kb(*wrong, code=1).err


def test_many_tables(kb: Run, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for topic in ("a", "b"):
        kb("topic", "create", topic, "-p", "2")
        send(broker, topic, ['{"id": 1, "more": 2}', '{"id": 2}'])
    Path("schema.json").write_text('{"id": "int"}')
    tables = '[[table]]\ntopic = "a"\nto = "delta:lake/a"\n'
    tables += '[[table]]\ntopic = "b"\nto = "delta:lake/b"\nschema = "schema.json"\nevery = "1s"\n'
    Path("tables.toml").write_text(tables + '[[table]]\ntopic = "c"\nto = "delta:lake/c"\n')
    found = kb("table", "run", "tables.toml", "--once", code=1)
    assert found.out == "3 rows to 2 tables\n" and "kbroker: delta:lake/c: topic c: there is no such topic" in found.err
    assert table_of(tmp_path / "lake" / "b")["id"].to_pylist() == [2]
    told = kb("table", "list", "tables.toml", "--json").json
    assert [(each["topic"], each.get("lag"), each.get("dead_letters")) for each in told] == [
        ("a", 0, 0),
        ("b", 0, 1),
        ("c", None, None),
    ]
    assert "topic c: there is no such topic" in kb("table", "list", "tables.toml").out
    kb("topic", "create", "c")
    assert "there is no table in delta:lake/c" in kb("table", "list", "tables.toml").out
    kb("table", "pause", "delta:lake/a")
    a, *_ = kb("table", "list", "tables.toml", "--json").json
    assert (a["paused"], a["lag_seconds"], a["runs"]) == (True, 0.0, False)
    assert "kbroker table resume" in kb("table", "run", "tables.toml", "--once", code=1).err
    assert kb("table", "resume", "delta:lake/a").out == "delta:lake/a goes on\n"
    assert "Give --yes" in kb("table", "drop", "delta:lake/a", code=1).err and table_of(Path("lake/a")).num_rows == 2
    assert (
        kb("table", "drop", "delta:lake/a", "--yes").out == "delta:lake/a is removed\n" and not Path("lake/a").exists()
    )
    Path("tables.toml").write_text('[[table]]\ntopic = "b"\nto = "delta:lake/b"\nvalue = "text"')
    refused = kb("table", "run", "tables.toml", "--once", code=1).err
    assert refused.startswith("kbroker: delta:lake/b has its values as json: leave out value, or name another place")
    for wrong, reason in (
        ("x = 1", "it has a [[table]] for each table"),
        ("table = [1]", "it has a [[table]] for each table"),
        ('[[table]]\ntopic = "a"', "tables.toml: table 1, of topic a: to is missing"),
        ('[[table]]\ntopic = "a"\nto = "lake"', "table 1, of topic a: to: 'lake' is not delta:PATH"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nvalue = "xml"', "value is one of bytes, text, json"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nmemory = "much"', "memory: 'much'"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\npartition-by = "("', "partition-by: '('"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nschema = "tables.toml"', "table 1, of topic a: tables.toml: "),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nschema = "x"\nvalue = "text"', ": schema is of values that are JSON"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nregistry = "x"\nvalue = "text"', ": registry is of values that are "),
        ('quota = "much"\n[[table]]\ntopic = "a"\nto = "delta:x"', "much"),
        ('qota = "1"\n[[table]]\ntopic = "a"\nto = "delta:x"', "qota is none of command-config, quota"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nevry = "1s"', "evry is none of"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nevery = 30', "every is a text in quotes"),
        ('[[table]]\ntopic = "a"\nto = "delta:x"\nupsert = "yes"', "upsert is true or false"),
    ):
        Path("tables.toml").write_text(wrong)
        assert reason in kb("table", "run", "tables.toml", "--once", code=1).err


def test_icebergs_table(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    place = ("iceberg:lake.events", "--catalog", f"sqlite:{tmp_path / 'lake' / 'catalog.db'}")
    kb("topic", "create", "events", "-p", "2")
    send(broker, "events", [json.dumps({"id": number}) for number in range(10)])
    kb("table", "follow", "events", "--to", *place, "--value", "json", "--once")
    send(broker, "events", [json.dumps({"id": 10, "at": {"city": "Rome"}}), "broken"])
    kb("table", "follow", "events", "--to", *place, "--once")
    told = kb("table", "describe", *place, "--json").json
    assert (told["rows"], told["dead_letters"], told["lag"], told["version"]) == (11, 1, 0, 2)
    warehouse = f"file://{tmp_path / 'lake'}"
    catalog = catalogs.SqlCatalog("kbroker", uri=f"sqlite:///{tmp_path / 'lake' / 'catalog.db'}", warehouse=warehouse)
    rows = catalog.load_table("lake.events").scan(row_filter="id > 8").to_arrow().to_pylist()
    assert sorted((row["id"], (row["at"] or {}).get("city")) for row in rows) == [(9, None), (10, "Rome")]
    assert "2 merged files, 2 expired, 0 removed files" in kb("table", "maintain", *place, "--keep", "0s").out
    assert kb("table", "describe", *place, "--json").json["rows"] == 11
    nowhere = (place[0], "--catalog", f"sqlite:{tmp_path / 'leak' / 'catalog.db'}")
    for words in (("describe",), ("pause",), ("drop", "--yes"), ("maintain",), ("maintain", "--any-table")):
        assert "iceberg:lake.events" in kb("table", *words, *nowhere, code=1).err
    assert not (tmp_path / "leak").exists()
    assert "has --catalog, such as sqlite:FILE" in kb("table", "describe", place[0], code=2).err


def test_what_cannot_be(kb: Run, tmp_path: Path) -> None:
    to = f"delta:{tmp_path / 't'}"
    assert "is not delta:PATH" in kb("table", "follow", "orders", "--to", "s3://bucket", code=2).err
    files = ("table", "follow", "orders", "--to", to, "--from", str(tmp_path), "--quota", "1MiB")
    assert "--from asks no broker: leave out --quota" in kb(*files, code=2).err
    assert "UNKNOWN_TOPIC" in kb("table", "follow", "nothing", "--to", to, "--once", code=1).err
    assert f"there is no table in delta:{tmp_path}" in kb("table", "describe", to, code=1).err
    deltalake.write_deltalake(tmp_path / "others", pyarrow.table({"id": [1]}))
    others = f"delta:{tmp_path / 'others'}"
    for verb in ("pause", "resume", "describe", "drop", "maintain"):
        refused = kb("table", verb, others, code=1).err
        how = ": --any-table maintains any table" if verb == "maintain" else ""
        assert refused == f"kbroker: there is no table in {others} that kbroker made{how}\n"
    assert kb("table", "maintain", others, "--any-table").out.startswith("0 merged files, 0 new files, ")
    (tmp_path / "s").write_text('{"id": "number"}')
    wrong = kb("table", "follow", "orders", "--to", to, "--schema", str(tmp_path / "s"), code=1)
    assert "id is none of boolean, int, long, double, string" in wrong.err


def test_what_others_have_put_beside_the_rows_is_left_alone(kb: Run, tmp_path: Path) -> None:
    """Delta's own vacuum removes all old files that the table does not know, whatever they are."""
    kb("topic", "create", "kept", "-p", "1")
    to = f"delta:{tmp_path / 'kept'}"
    kb("table", "follow", "kept", "--to", to, "--once")
    theirs = [tmp_path / "kept" / name for name in ("notes.txt", "photo.parquet", "sub/part-0.parquet")]
    orphan = tmp_path / "kept" / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    for path in (*theirs, orphan):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    assert "3 kept files of others" in kb("table", "maintain", to).out
    assert all(path.exists() for path in theirs)
    for path in theirs:
        path.unlink()
    assert "1 removed file" in kb("table", "maintain", to).out and not orphan.exists()


def test_a_failure_that_nobody_foresaw(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told as others are, and the table is tried again; for once it has failed."""
    from kbroker.client import Client
    from kbroker.tables.follower import Settings
    from kbroker.tools.cli.table_following import Order, Way, keep_many

    def make_target() -> Any:
        raise KeyError("surprise")

    with Client(broker.bootstrap_servers) as client:
        order = Order("orders", "delta:t", Settings(), make_target)
        assert keep_many([order], client, threading.Event(), Way(once=True)) == ({}, ["delta:t"])
    told = capsys.readouterr().err
    assert "KeyError: 'surprise'" in told and "kbroker: delta:t: KeyError, of which more is above" in told


def test_the_latest_of_each_key(kb: Run, broker: RunningBroker, tmp_path: Path) -> None:
    """By options and by a file; what does not go together is said; the job of Spark is where it is said to be."""
    kb("topic", "create", "latest", "-p", "2", "-c", "cleanup.policy=compact")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        producer.produce("latest", json.dumps({"id": number}), b"k%d" % (number % 4))
    producer.produce("latest", None, b"k0")
    assert producer.flush(LONG) == 0
    to = f"delta:{tmp_path / 'l'}"
    words = ("table", "follow", "latest", "--to", to, "--once", "--json")
    assert kb(*words, "--value", "json", "--upsert").json["rows"] == 21
    assert sorted(table_of(tmp_path / "l")["id"].to_pylist()) == [17, 18, 19]
    assert kb("table", "describe", to, "--json").json["way"] == "upsert"
    file = tmp_path / "tables.toml"
    entry = f'[[table]]\ntopic = "latest"\nto = "delta:{tmp_path / "m"}"\nvalue = "json"\nmerge = false\nkeep = "2d"\n'
    file.write_text(entry + "upsert = true\n")
    kb("table", "run", str(file), "--once")
    assert sorted(table_of(tmp_path / "m")["id"].to_pylist()) == [17, 18, 19]
    file.write_text(entry + 'upsert = "yes"\n')
    assert "upsert" in kb("table", "run", str(file), "--once", code=1).err
    file.write_text(entry.replace("json", "text") + 'changes = "debezium"\n')
    assert "values that are json, avro, protobuf" in kb("table", "run", str(file), "--once", code=1).err
    assert "values that are json, avro" in kb(*words, "--value", "text", "--changes", "debezium", code=2).err
    assert "whole hours" in kb("table", "maintain", to, "--keep", "90m", code=2).err
    assert Path(kb("table", "maintain", "--spark-job").out.strip()).is_file()
