"""``kbroker scrub``: the nodes of a cluster verify what they hold, and tell of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import main
from tests.node.metrics_pages import LISTENER, found, port_of, scrape
from tests.patience import LONG, eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({**LISTENER, "log.scrub.bytes.per.second": str(1 << 40)}) as it:
        admin = AdminClient({"bootstrap.servers": it.bootstrap_servers})
        config = {"internal.segment.bytes": "1000"}
        admin.create_topics([NewTopic("t", 1, config=config)])["t"].result(LONG)
        producer = Producer({"bootstrap.servers": it.bootstrap_servers, "linger.ms": 0})
        for number in range(30):
            producer.produce("t", b"%d" % number * 50)
            assert producer.flush(LONG) == 0
        await_scrubber(it)
        yield it


def await_scrubber(broker: RunningBroker) -> None:
    eventually(
        lambda: broker.in_broker(lambda node: (scrubber := node.log_care.scrubber) is not None and scrubber.progress)
    )


def scrub(broker: RunningBroker, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["scrub", "-b", broker.bootstrap_servers, "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_a_cluster_is_scrubbed_at_once(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code, (row,) = scrub(broker, capsys)
    assert code == 0
    assert row["done_bytes"] == row["total_bytes"] > 1000 and row["damaged"] == 0 and row["missing"] == []
    assert 0 < row["began_ms"] <= row["ended_ms"]
    page = scrape(port_of(broker))
    assert list(found(page, "kbroker_log_scrub_progress").values()) == [1]
    assert list(found(page, "kbroker_log_scrub_damage").values()) == [0]
    assert list(found(page, "kbroker_log_scrub_end_timestamp_seconds").values()) == [row["ended_ms"] / 1000]
    assert sum(found(page, "kbroker_log_scrubbed_bytes_total").values()) >= row["done_bytes"]
    assert scrub(broker, capsys, "--status") == (0, [row]), "to ask changes nothing"
    assert main(["scrub", "-b", broker.bootstrap_servers]) == 0
    heading = ["broker", "directory", "read", "of", "damaged", "missing", "ended"]
    assert capsys.readouterr().out.splitlines()[0].split() == heading


def test_a_node_that_does_not_scrub_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker({"log.scrub.bytes.per.second": "0"}) as broker:
        assert main(["scrub", "-b", broker.bootstrap_servers, "--json"]) == 1
        assert "broker 1 does not scrub" in capsys.readouterr().err


def test_a_log_that_was_emptied_is_told_by_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker(data_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1)])["t"].result(LONG)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(30):
            producer.produce("t", b"v")
        assert producer.flush(LONG) == 0
    [log] = tmp_path.rglob("t-0/*.log")
    log.write_bytes(b"")
    with running_broker({"log.scrub.bytes.per.second": str(1 << 40)}, data_dir=tmp_path) as broker:
        await_scrubber(broker)
        code, (row,) = scrub(broker, capsys)
        assert code == 1
        [lost] = row["missing"]
        assert (lost["partition"], lost["start_offset"], lost["end_offset"]) == ("t-0", 0, 30)
        assert main(["scrub", "-b", broker.bootstrap_servers]) == 1
        assert "broker 1: offsets 0 to 29 of t-0 are missing: " in capsys.readouterr().out
    for words in (["scrub", str(log.parent)], ["put-back", "--list", str(log.parent)]):
        assert main(words) == (words[0] == "scrub")
        assert "  offsets 0 to 29 are missing: " in capsys.readouterr().out


def test_a_directory_is_read_as_by_verify_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scrub", str(tmp_path)]) == 1
    assert "there is no partition in it" in capsys.readouterr().err
    for words in (["--status", str(tmp_path)], ["--records"]):
        assert main(["scrub", *words]) == 2
        assert "DIR" in capsys.readouterr().err
