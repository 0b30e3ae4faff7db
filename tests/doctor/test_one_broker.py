"""Mistakes planted in running brokers: ``kbroker doctor`` finds each by the check that is meant, and nothing else."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from kbroker.client import Client, ResponseError
from kbroker.client.groups import commit_offsets
from kbroker.client.producer import Producer
from kbroker.client.quotas import alter_quotas
from kbroker.client.topics import NewTopic, delete_topics
from kbroker.sim.classic_group_clients import ASSIGNOR, join_request, shares, subscription, sync_request
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import main
from kbroker.tools.cli.certificate_files import LOCAL_HOSTS, CertificateFiles
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.cli.secure_setup import login_line, pem_stores
from kbroker.tools.diagnosis.asking import now_ms
from kbroker.tools.doctor.checklist import all_checks
from kbroker.tools.doctor.facts import Facts
from kbroker.tools.doctor.findings import examine
from kbroker.tools.doctor.gather.cluster import ClusterLook
from kbroker.tools.doctor.gather.listeners import Probe
from kbroker.types import TopicPartition
from kbroker.wire.messages.classic_groups import LeaveGroupRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.record_batch import Record
from kbroker.wire.schema import Request
from tests.doctor.conftest import PATIENT, QUIET, Doctor, create
from tests.hanging_transactions import write_unknown
from tests.patience import LONG

Write = Callable[[Mapping[str, str]], Path]
R = TypeVar("R")


class Ask(Protocol):
    """Asks the coordinator of a group, by a version of at most ``highest``."""

    def __call__(self, request: Request[R], highest: int) -> R: ...


@contextmanager
def topic(broker: RunningBroker, name: str, **configs: str) -> Iterator[Client]:
    """A topic with configs, whose names have ``_`` for dots, for the length of the block."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    with Client(broker.bootstrap_servers) as client:
        create(client, NewTopic(name, 1, 1, given))
        try:
            yield client
        finally:
            delete_topics(client, [name])


def produce(client: Client, name: str, *timestamps: int) -> None:
    refused: list[object] = []
    producer = Producer(client, name, [0], on_refused=refused.append)
    for timestamp in timestamps:
        producer.send(Record(0, timestamp, b"key", b"value"), 0)
    producer.flush()
    assert not refused


@contextmanager
def joined(broker: RunningBroker, group: str) -> Iterator[tuple[Ask, Any]]:
    """A member that has joined a group, and is to lead it: its way to the coordinator, and the answer to it."""
    with Client(broker.bootstrap_servers, timeout=LONG) as client:

        def ask(request: Request[R], highest: int) -> R:
            def check(response: Any) -> None:
                if getattr(response, "error_code", 0):
                    raise ResponseError(response.error_code, f"group {group}")

            return client.ask_coordinator(group, request, check, highest=highest)

        request = join_request(
            group, "", [(ASSIGNOR, subscription("t"))], session_timeout_ms=600_000, rebalance_timeout_ms=600_000
        )
        answer = ask(request, 3)
        yield ask, answer
        ask(LeaveGroupRequest(group_id=group, member_id=answer.member_id), 2)


# --- Sound brokers --------------------------------------------------------------------------------------------------


def test_a_sound_broker_has_nothing_wrong(broker: RunningBroker, doctor: Doctor) -> None:
    with topic(broker, "t") as client:
        produce(client, "t", now_ms())
        commit_offsets(client, "readers", {TopicPartition("t", 0): 1})
        assert doctor("-b", broker.bootstrap_servers) == {}


def test_a_sound_secure_broker_has_nothing_wrong(secure: RunningBroker, doctor: Doctor, properties_file: Write) -> None:
    assert doctor("--command-config", properties_file(secure.client_properties())) == {}


# --- Addresses ------------------------------------------------------------------------------------------------------


def test_nobody_listens(doctor: Doctor) -> None:
    port = free_ports(1)[0]
    found = doctor("-b", f"127.0.0.1:{port}")
    assert list(found) == ["bootstrap"] and "refused" in found["bootstrap"][0]["evidence"]


def test_an_advertised_port_that_nobody_listens_on(doctor: Doctor) -> None:
    with running_broker(QUIET | {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"}) as broker:
        found = doctor("-b", broker.bootstrap_servers)
    assert list(found) == ["advertised-reachable"] and found["advertised-reachable"][0]["about"] == "broker 1"


def test_an_advertised_address_of_another_cluster(broker: RunningBroker, doctor: Doctor) -> None:
    with running_broker(QUIET | {"advertised.listeners": f"PLAINTEXT://{broker.bootstrap_servers}"}) as other:
        found = doctor("-b", other.bootstrap_servers)
    assert list(found) == ["advertised-identity"] and "another cluster" in found["advertised-identity"][0]["text"]


def test_an_advertised_address_of_another_node(broker: RunningBroker) -> None:
    look = Probe().look("127.0.0.1", int(broker.bootstrap_servers.split(":")[1]), 7)
    assert look.entered and look.other_id == "1"


def test_the_port_of_the_controller(broker: RunningBroker, doctor: Doctor) -> None:
    assert list(doctor("-b", broker.address("CONTROLLER"))) == ["not-a-broker"]


def test_the_port_of_something_else(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = doctor("-b", f"127.0.0.1:{other.getsockname()[1]}", "--timeout", "0.2")
    assert list(found) == ["not-a-broker"]


# --- Security -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure() -> Iterator[RunningBroker]:
    with running_broker(QUIET | {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}, security="sasl_ssl") as running:
        yield running


def test_a_plain_client_at_a_listener_with_tls(secure: RunningBroker, doctor: Doctor) -> None:
    found = doctor("-b", secure.bootstrap_servers)
    assert list(found) == ["security-protocol"] and "speaks SASL_SSL" in found["security-protocol"][0]["text"]


def test_a_client_with_tls_at_a_plain_listener(
    broker: RunningBroker, secure: RunningBroker, doctor: Doctor, properties_file: Write
) -> None:
    given = secure.client_properties() | {"bootstrap.servers": broker.bootstrap_servers}
    found = doctor("--command-config", properties_file(given))
    assert list(found) == ["security-protocol"] and "speaks PLAINTEXT" in found["security-protocol"][0]["text"]


def test_a_client_with_tls_alone_where_sasl_is_asked_for(
    secure: RunningBroker, doctor: Doctor, properties_file: Write
) -> None:
    given = secure.client_properties() | {"security.protocol": "SSL"}
    assert list(doctor("--command-config", properties_file(given))) == ["security-protocol"]


def test_a_mechanism_that_is_not_offered(secure: RunningBroker, doctor: Doctor, properties_file: Write) -> None:
    given = secure.client_properties() | {"sasl.mechanism": "SCRAM-SHA-256"}
    found = doctor("--command-config", properties_file(given))
    assert list(found) == ["sasl-mechanism"] and "PLAIN, SCRAM-SHA-512" in found["sasl-mechanism"][0]["evidence"]


def test_a_wrong_password(secure: RunningBroker, doctor: Doctor, properties_file: Write) -> None:
    login = login_line("SCRAM-SHA-512", {"username": "alice", "password": "guessed-wrong"})
    given = secure.client_properties("alice") | {"sasl.jaas.config": login}
    found = doctor("--command-config", properties_file(given))
    assert list(found) == ["login"] and "guessed-wrong" not in str(found)


CERTIFICATES: dict[str, tuple[Any, int]] = {
    "SOON": (LOCAL_HOSTS, 5),
    "OVER": (LOCAL_HOSTS, 0),
    "NAME": (("kafka.example",), 100),
    "GOOD": (LOCAL_HOSTS, 100),
}
"""A listener -> the hosts and the days of its certificate."""


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, CertificateFiles]]:
    """A broker with a certificate for each listener, and their authority. Itself it uses a plain one."""
    files = CertificateFiles(tmp_path_factory.mktemp("certificates"))
    given: dict[str, str] = {}
    for name, (hosts, days) in CERTIFICATES.items():
        stores = pem_stores(files.ca_file, files.issue(name, hosts, days=days)[0])
        given |= {f"listener.name.{name.lower()}.{key}": value for key, value in stores.items()}
    protocols = "".join(f",{name}:SSL" for name in CERTIFICATES)
    given["listeners"] = "PLAINTEXT://127.0.0.1:0" + "".join(f",{name}://127.0.0.1:0" for name in CERTIFICATES)
    given["listener.security.protocol.map"] = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}"
    with running_broker(QUIET | given | {"inter.broker.listener.name": "PLAINTEXT"}) as running:
        yield running, files


@pytest.mark.parametrize(
    ("listener", "check"),
    [
        ("SOON", "certificate-expiry"),
        ("OVER", "certificate-expiry"),
        ("NAME", "certificate-name"),
        ("GOOD", None),
        ("GOOD", "certificate-trust"),
    ],
)
def test_a_certificate(
    listener: str,
    check: str | None,
    certified: tuple[RunningBroker, CertificateFiles],
    doctor: Doctor,
    properties_file: Write,
    tmp_path: Path,
) -> None:
    broker, files = certified
    trusted = CertificateFiles(tmp_path / "other").ca_file if check == "certificate-trust" else files.ca_file
    given = {"security.protocol": "SSL", "bootstrap.servers": broker.address(listener)} | pem_stores(trusted)
    assert list(doctor("--command-config", properties_file(given))) == ([] if check is None else [check])


# --- The cluster ----------------------------------------------------------------------------------------------------


def test_a_clock_that_is_ahead(doctor: Doctor) -> None:
    with running_broker(QUIET) as broker:
        broker.advance(300)
        found = doctor("-b", broker.bootstrap_servers)
    assert list(found) == ["clocks"]
    told = re.search(r" is ([\d.]+) s ahead of this machine's", found["clocks"][0]["text"])
    assert told is not None and 150 < float(told[1]) <= 300.1, "less by the time that the answer was on its way"


def test_properties_of_the_node(doctor: Doctor) -> None:
    """Several at once: each has its own check."""
    wrong = {"default.replication.factor": "3", "offsets.retention.minutes": "30", "auto.create.topics.enable": "true"}
    with running_broker(wrong) as broker:
        found = doctor("-b", broker.bootstrap_servers)
    assert list(found) == ["replication-factor", "retention", "auto-create"]
    assert [each[0]["severity"] for each in found.values()] == ["error", "warning", "note"]


@pytest.mark.parametrize(
    ("configs", "name"),
    [
        ({"min_insync_replicas": "2"}, "min-isr"),
        ({"unclean_leader_election_enable": "true"}, "unclean-election"),
        ({"max_message_bytes": "200000000"}, "message-sizes"),
        ({"retention_ms": "60000"}, "retention"),
    ],
)
def test_a_config_of_a_topic(configs: dict[str, str], name: str, broker: RunningBroker, doctor: Doctor) -> None:
    with topic(broker, "wrong", **configs):
        found = doctor("-b", broker.bootstrap_servers)
    assert list(found) == [name] and "topic wrong" in found[name][0]["about"]


def test_records_of_the_future(broker: RunningBroker, doctor: Doctor) -> None:
    with topic(broker, "future", message_timestamp_after_max_ms=str(10**15)) as client:
        produce(client, "future", now_ms(), now_ms() + 86_400_000)
        assert list(doctor("-b", broker.bootstrap_servers)) == ["future-records"]


def test_a_tiny_quota(broker: RunningBroker, doctor: Doctor) -> None:
    with Client(broker.bootstrap_servers) as client:
        alter_quotas(client, {"client-id": "batch"}, {"producer_byte_rate": 1024.0})
        try:
            found = doctor("-b", broker.bootstrap_servers)
        finally:
            alter_quotas(client, {"client-id": "batch"}, {"producer_byte_rate": None})
    assert list(found) == ["throttling"] and found["throttling"][0]["about"] == "client-id batch"


def test_a_time_that_brokers_do_not_allow(broker: RunningBroker, doctor: Doctor, properties_file: Write) -> None:
    given = {"bootstrap.servers": broker.bootstrap_servers, "transaction.timeout.ms": "3600000"}
    assert list(doctor("--command-config", properties_file(given))) == ["client-limits"]


def test_a_transaction_that_no_coordinator_knows(broker: RunningBroker, doctor: Doctor) -> None:
    with topic(broker, "held") as client:
        write_unknown(client, TopicPartition("held", 0), now_ms())
        found = doctor("-b", broker.bootstrap_servers)
        assert list(found) == ["hanging-transactions"]
        remedy = found["hanging-transactions"][0]["remedy"]
        assert main([*remedy.split()[1:], "-b", broker.bootstrap_servers, "--yes"]) == 0
        assert doctor("-b", broker.bootstrap_servers) == {}


def look(broker: RunningBroker, between: Callable[[], None]) -> list[str]:
    """The checks that find something with two looks at the groups."""

    def progress(text: str) -> None:
        if text.startswith("the groups again"):
            between()

    host, port = broker.bootstrap_servers.split(":")
    cluster = ClusterLook([(host, int(port))], Probe(), seconds=LONG, look_again=0.01, progress=progress).take()
    return [check.name for check, _ in examine(Facts(now_ms(), cluster=cluster), list(all_checks()))]


def test_a_group_that_does_not_end_its_rebalance(broker: RunningBroker) -> None:
    with joined(broker, "restless"):
        assert look(broker, lambda: None) == ["group-rebalancing"]


def test_a_consumer_that_does_not_get_on(broker: RunningBroker) -> None:
    with topic(broker, "t") as client, joined(broker, "stuck") as (ask, answer):
        produce(client, "t", now_ms(), now_ms())
        request = sync_request("stuck", answer.generation_id, answer.member_id, shares("t", 1, answer))
        ask(request, 3)
        at = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id="stuck",
            generation_id_or_member_epoch=answer.generation_id,
            member_id=answer.member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[at])],
        )
        assert ask(commit, 8).topics[0].partitions[0].error_code == 0
        assert look(broker, lambda: produce(client, "t", now_ms())) == ["consumer-stuck"]
        assert look(broker, lambda: None) == ["consumer-stuck"], "as the console has it: no more records have to come"


# --- The command ----------------------------------------------------------------------------------------------------


def test_checks_are_chosen(doctor: Doctor) -> None:
    with running_broker({"default.replication.factor": "3"}) as broker:
        assert list(doctor("-b", broker.bootstrap_servers, "--only", "auto-create")) == ["auto-create"]
        found = doctor("-b", broker.bootstrap_servers, "--skip", "auto-create", "--skip", "replication-factor")
        assert found == {}
        assert doctor("-b", broker.bootstrap_servers, "--only", "clocks") == {}


def test_the_report_is_text(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-b", broker.bootstrap_servers, "--look-again", "0", *PATIENT]) == 0
    assert f"nothing is wrong ({len(all_checks())} checks)" in capsys.readouterr().out
    assert main(["doctor", "-b", f"127.0.0.1:{free_ports(1)[0]}"]) == 1
    out = capsys.readouterr().out
    assert "ERROR 127.0.0.1" in out and "what to do: Start the broker" in out and "1 error (" in out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words, problem in (
        (["--only", "colour"], "there is no such check"),
        (["-o", "a=b"], "-o goes with --config"),
        (["--config", "x", "--data-dir", "y"], "--data-dir is for the development node"),
    ):
        assert main(["doctor", *words]) == 2
        assert problem in capsys.readouterr().err
