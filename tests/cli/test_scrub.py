"""``kbroker scrub``: the nodes of a cluster verify what they hold, and tell of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

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
        eventually(
            lambda: it.in_broker(lambda node: (scrubber := node.log_care.scrubber) is not None and scrubber.progress)
        )
        yield it


def scrub(broker: RunningBroker, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[dict[str, int]]]:
    code = main(["scrub", "-b", broker.bootstrap_servers, "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_a_cluster_is_scrubbed_at_once(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code, (row,) = scrub(broker, capsys)
    assert code == 0
    assert row["done_bytes"] == row["total_bytes"] > 1000 and row["damaged"] == 0
    assert 0 < row["began_ms"] <= row["ended_ms"]
    page = scrape(port_of(broker))
    assert list(found(page, "kbroker_log_scrub_progress").values()) == [1]
    assert list(found(page, "kbroker_log_scrub_damage").values()) == [0]
    assert list(found(page, "kbroker_log_scrub_end_timestamp_seconds").values()) == [row["ended_ms"] / 1000]
    assert sum(found(page, "kbroker_log_scrubbed_bytes_total").values()) >= row["done_bytes"]
    assert scrub(broker, capsys, "--status") == (0, [row]), "to ask changes nothing"
    assert main(["scrub", "-b", broker.bootstrap_servers]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["broker", "directory", "read", "of", "damaged", "ended"]


def test_a_node_that_does_not_scrub_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker({"log.scrub.bytes.per.second": "0"}) as broker:
        assert main(["scrub", "-b", broker.bootstrap_servers, "--json"]) == 1
        assert "broker 1 does not scrub" in capsys.readouterr().err


def test_a_directory_is_read_as_by_verify_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scrub", str(tmp_path)]) == 1
    assert "there is no partition in it" in capsys.readouterr().err
    for words in (["--status", str(tmp_path)], ["--records"]):
        assert main(["scrub", *words]) == 2
        assert "DIR" in capsys.readouterr().err
