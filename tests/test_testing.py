"""kbroker.testing and the pytest plugin, used as a stranger would, with a stock client."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.broker import _config
from tests.patience import LONG, LONG_MS, eventually

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")


def produce(broker: RunningBroker, topic: str, *values: bytes) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for value in values:
        producer.send(topic, value).get(timeout=LONG)
    producer.close()


def consume(broker: RunningBroker, topic: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=LONG_MS
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def partition_count(broker: RunningBroker, topic: str) -> int:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    try:
        return len(consumer.partitions_for_topic(topic))
    finally:
        consumer.close()


def test_produce_and_consume(broker: RunningBroker) -> None:
    produce(broker, "greetings", b"hello", b"world")
    assert consume(broker, "greetings", 2) == [b"hello", b"world"]
    assert (broker.data_dir / "greetings-0").is_dir()
    assert broker.host == "127.0.0.1" and broker.bootstrap_servers == f"127.0.0.1:{broker.port}"


def test_all_fetches_of_a_session_are_told_with_their_topic(broker: RunningBroker) -> None:
    produce(broker, "followed", b"a")
    broker.record_requests()
    consumer = kafka.KafkaConsumer("followed", bootstrap_servers=broker.bootstrap_servers, fetch_max_wait_ms=20)
    while broker.requests(api="Fetch").count < 5:
        consumer.poll(50)
    told = broker.requests(api="Fetch").requests
    broker.record_requests(False)
    consumer.close()
    assert [each.topics for each in told] == [{"followed": [0]}] * len(told)


def test_two_brokers_side_by_side_and_nothing_left_behind() -> None:
    before = set(threading.enumerate())
    with running_broker() as one, running_broker({"num.partitions": 3}) as other:
        assert one.port != other.port
        produce(one, "t", b"1")
        produce(other, "t", b"2")
        assert consume(one, "t", 1) == [b"1"]
        assert partition_count(one, "t") == 1 and partition_count(other, "t") == 3
        directories = [one.data_dir, other.data_dir]
    assert not any(directory.exists() for directory in directories)
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name == "kbroker"]


def test_data_outlives_the_broker_in_a_directory_of_ones_own(tmp_path: Path) -> None:
    with running_broker(data_dir=tmp_path) as broker:
        produce(broker, "kept", b"a")
    with running_broker(data_dir=tmp_path) as broker:
        produce(broker, "kept", b"b")
        assert consume(broker, "kept", 2) == [b"a", b"b"]


def test_stop_may_come_early_and_twice() -> None:
    broker = RunningBroker()
    assert "not started" in repr(broker)
    broker.start()
    broker.stop()
    broker.stop()
    assert not broker.data_dir.exists()
    RunningBroker().stop()


def test_a_second_start_changes_nothing() -> None:
    with running_broker() as broker, broker.start() as same:
        assert same is broker and broker.is_running


def test_what_is_interrupted_while_it_starts_leaves_nothing() -> None:
    broker, before = RunningBroker(), set(threading.enumerate())

    def is_there() -> bool:
        return any(thread.name == "kbroker" for thread in set(threading.enumerate()) - before)

    def interrupt() -> None:
        while not is_there():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        with broker:
            time.sleep(LONG)  # if it has started already
    assert not broker.data_dir.exists() and not broker.is_running and not is_there()


FORKS = """
import faulthandler, os, socket
from kbroker.testing import running_broker

faulthandler.dump_traceback_later(100, exit=True)
with running_broker() as broker:
    client = socket.create_connection((broker.host, broker.port), 90)
    broker.in_broker(lambda node: None)
    waits, ends = os.pipe()
    child = os.fork()
    if not child:
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    broker.restart()
    assert client.recv(1) == b""
    broker.stop()
    try:
        socket.create_connection((broker.host, broker.port))
    except ConnectionRefusedError:
        print("nothing is open")
    os.close(ends)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_process_that_is_forked_keeps_nothing_open() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=LONG)
    assert (done.stdout, done.returncode) == ("nothing is open\n", 0), done.stderr


def lose_disk(broker: RunningBroker) -> None:
    shutil.rmtree(broker.data_dir)
    with suppress(TimeoutError, RuntimeError):
        broker.wait_for_group("g", timeout=0)  # which would have to make __consumer_offsets
    eventually(lambda: not broker.is_running)


def test_a_broker_that_dies_says_so(caplog: pytest.LogCaptureFixture) -> None:
    broker = RunningBroker().start()
    lose_disk(broker)
    assert "the broker has ended: the log dir" in caplog.text
    with pytest.raises(RuntimeError, match="not running") as caught:
        broker.create_topic("t")
    assert isinstance(caught.value.__cause__, FatalError)
    with pytest.raises(FatalError):
        broker.stop()


def test_what_keeps_it_from_starting_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(FatalError, match=r"num\.partitions"):
        RunningBroker({"num.partitions": "x"}, security="sasl_plaintext")
    assert not [*temporary.iterdir()]
    with pytest.raises(FatalError, match="expected text"):
        RunningBroker({"num.partitions": [1]})
    with (
        running_broker(data_dir=tmp_path / "data") as first,
        pytest.raises(FatalError, match="locked"),
        running_broker(data_dir=tmp_path / "data"),
    ):
        pass
    assert first.data_dir.exists()


def test_each_broker_keeps_its_own_log_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker")
    with running_broker() as one, running_broker() as other:
        pass
    assert any(str(one.port) in record.getMessage() for record in one.logs)
    assert not any(f":{one.port}" in record.getMessage() for record in other.logs)


def test_the_plugins_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def kafka_broker_properties():\n"
        "    return {'num.partitions': 2}\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import socket\n"
        "seen = []\n"
        "def test_one(kafka_broker, kafka_topic):\n"
        "    assert kafka_topic.startswith('test_one-')\n"
        "    assert kafka_broker.config.num_partitions == 2\n"
        "    socket.create_connection((kafka_broker.host, kafka_broker.port)).close()\n"
        "    seen.append((kafka_broker, kafka_topic))\n"
        "def test_faults(kafka_faults):\n"
        "    kafka_faults.drop('Metadata')\n"
        "    assert kafka_faults.active\n"
        "def test_two(kafka_broker, kafka_topic):\n"
        "    assert kafka_broker.faults.active == []\n"
        "    assert seen[0][0] is kafka_broker and seen[0][1] != kafka_topic\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_tests_after_the_end_of_the_plugins_broker_fail_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from tests.test_testing import lose_disk\n"
        "def test_one(kafka_broker):\n"
        "    lose_disk(kafka_broker)\n"
        "def test_two(kafka_broker, kafka_topic):\n"
        "    raise AssertionError('it has a broker')\n"
        "def test_three(kafka_faults):\n"
        "    raise AssertionError('it has a broker')\n"
    )
    done = run_pytest(tmp_path)
    assert "1 passed, 3 errors" in done.stdout, done.stdout + done.stderr  # the third at the session's end
    assert done.stdout.count("was removed, or its disk unmounted") >= 3


def run_pytest(directory: Path) -> subprocess.CompletedProcess[str]:
    words = ["-q", "-p", "kbroker.pytest_plugin", "-p", "no:cacheprovider", str(directory)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        timeout=2 * LONG,
    )


def test_a_start_imports_what_one_broker_needs_and_leaves_the_collector_as_it_was() -> None:
    program = """
import gc, sys
from kbroker.testing import running_broker
with running_broker():
    assert gc.isenabled()
    late = [name for name in sys.modules if name.startswith(("kbroker.client", "kbroker.testing.cluster"))]
    names = ("handlers.fetch", "cores.groups.group_coordinator", "wire.layouts")
    late += {"construct", *(f"kbroker.{name}" for name in names)} & set(sys.modules)
gc.disable()
with running_broker():
    assert not gc.isenabled()
from kbroker.testing import running_cluster
print(late, running_cluster.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[] RunningCluster\n", done.stderr


def test_a_port_is_chosen_where_it_was_looked_at(tmp_path: Path) -> None:
    """A port that is free on the loopback interface may be taken on another: the system chooses there."""
    given = "PLAINTEXT://127.0.0.1:0,OTHER://localhost:0,ALL://0.0.0.0:0,SIX://[::1]:0,CONTROLLER://127.0.0.1:0"
    names = given.replace("//", "").split(",")
    properties = {
        "listeners": given,
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,OTHER://localhost:0,ALL://127.0.0.1:0,SIX://[::1]:0",
        "listener.security.protocol.map": ",".join(f"{each.partition(':')[0]}:PLAINTEXT" for each in names),
    }
    claimed: list[int] = []
    config = _config(properties, tmp_path, 0, claimed)
    ports = {listener.name: listener.port for listener in config.listeners}
    assert ports["ALL"] == ports["SIX"] == 0
    assert sorted(claimed) == sorted(ports[name] for name in ("PLAINTEXT", "OTHER", "CONTROLLER"))
