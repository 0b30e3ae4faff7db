"""Mistakes planted in configuration files and directories, found before a node is started; and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.config import BrokerConfig
from kbroker.config.properties_file import format_properties
from kbroker.log.checkpoint_files import LOG_START_OFFSETS, write_offsets
from kbroker.log.damage import Damage, note
from kbroker.log.disk import OsDisk
from kbroker.tools.cli.storage import format_if_needed
from kbroker.tools.doctor.gather.machine import machine_facts
from kbroker.tools.doctor.hosts import is_loopback, matches
from kbroker.types import TopicPartition
from tests.doctor.conftest import Doctor
from tests.with_each import examples

GIVEN = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}

OPEN = {
    "listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093",
    "advertised_listeners": "PLAINTEXT://localhost:9092",
}

ASIDE = ("--skip", "clock-sync", "--skip", "directories")
"""The clock of the machine with the tests is as it is, and their directories are temporary."""


def configured(tmp_path: Path, **changes: str) -> list[str]:
    """The options for a configuration; names of properties with ``_`` for dots."""
    given = (
        GIVEN | {"log.dirs": str(tmp_path / "data")} | {key.replace("_", "."): value for key, value in changes.items()}
    )
    path = tmp_path / "server.properties"
    path.write_text(format_properties(given, ""))
    return ["--config", str(path)]


def test_a_sound_configuration_has_nothing_wrong(tmp_path: Path, doctor: Doctor) -> None:
    assert doctor(*configured(tmp_path), *ASIDE) == {}
    assert doctor("--data-dir", tmp_path / "data", *ASIDE) == {}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"num_partitions": "many"}, "configuration"),
        ({"num_partition": "3"}, "configuration"),
        (OPEN, "advertised-config"),
        ({"min_insync_replicas": "2"}, "min-isr"),
        ({"unclean_leader_election_enable": "true"}, "unclean-election"),
        ({"controller_quorum_voters": "1@127.0.0.1:9093,2@127.0.0.1:9094"}, "quorum-size"),
    ],
)
def test_a_property_with_a_mistake(changes: dict[str, str], name: str, tmp_path: Path, doctor: Doctor) -> None:
    found = doctor(*configured(tmp_path, **changes), *ASIDE)
    assert set(found) == ({name, "exposure"} if changes is OPEN else {name})


def test_an_override_is_judged(tmp_path: Path, doctor: Doctor) -> None:
    assert list(doctor(*configured(tmp_path), "-o", "num.partitions=-5", *ASIDE)) == ["configuration"]


def test_a_directory_of_another_node(tmp_path: Path, doctor: Doctor) -> None:
    words = configured(tmp_path)
    format_if_needed(BrokerConfig.from_properties(GIVEN | {"log.dirs": str(tmp_path / "data")}))
    found = doctor(
        *words, "-o", "node.id=2", "-o", "controller.quorum.voters=2@127.0.0.1:9093", "--only", "directories"
    )
    assert "belongs to node 1, and node.id is 2" in found["directories"][0]["text"]
    assert "temporary" in found["directories"][1]["text"]


def test_offsets_that_are_missing_from_a_log_of_a_node_that_is_down(tmp_path: Path, doctor: Doctor) -> None:
    words = [*configured(tmp_path), "--only", "damaged-replica"]
    data = tmp_path / "data"
    format_if_needed(BrokerConfig.from_properties(GIVEN | {"log.dirs": str(data)}))
    (data / "orders-0").mkdir()
    (data / "orders-0" / "00000000000000000000.log").touch()
    note(OsDisk(), str(data / "orders-0"), [Damage(400, 500, "00000000000000000000.log", 0, 0, "zeros", 1)])
    [found] = doctor(*words)["damaged-replica"]
    assert found["text"] == "Broker 1: its log of orders-0 is damaged, offsets 400 to 499 are missing."
    starts = str(data / LOG_START_OFFSETS)
    write_offsets(OsDisk(), starts, {TopicPartition("orders", 0): 499})
    assert len(doctor(*words)["damaged-replica"]) == 1
    write_offsets(OsDisk(), starts, {TopicPartition("orders", 0): 500})
    assert doctor(*words) == {}, "retention has passed the hole"


def test_a_file_for_a_directory(tmp_path: Path, doctor: Doctor) -> None:
    (tmp_path / "data").write_text("")
    found = doctor(*configured(tmp_path), "--only", "directories")
    assert "it is not a directory" in found["directories"][0]["text"]


def test_a_file_that_is_not_there(tmp_path: Path, doctor: Doctor) -> None:
    assert list(doctor("--config", tmp_path / "none", *ASIDE)) == ["configuration"]


def test_the_machine_is_looked_at() -> None:
    facts = machine_facts()
    assert facts.clock_synchronised in (True, False, None)
    assert facts.open_files is None or facts.open_files > 0


def test_what_is_this_machine() -> None:
    assert is_loopback("127.0.0.9") and is_loopback("::1") and is_loopback("localhost")
    assert is_loopback("me", ["127.0.1.1"]) and not is_loopback("me", ["192.0.2.1"]) and not is_loopback("me", [])
    assert not is_loopback("192.0.2.1", ["127.0.0.1"])


LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=8).filter(lambda text: not text.isdigit())


@settings(max_examples=examples(50))
@given(st.lists(LABEL, min_size=2, max_size=4), LABEL)
def test_names_of_certificates(labels: list[str], other: str) -> None:
    host = ".".join(labels)
    assert matches(host.upper(), [host]) and matches(host, ["*." + ".".join(labels[1:])])
    assert not matches(f"{other}.{host}", ["*." + ".".join(labels[1:])])
    assert not matches(host, [f"{other}.{host}", "*", "*.", ""])


def test_addresses_of_certificates() -> None:
    assert matches("::1", ["0:0::1"]) and matches("127.0.0.1", ["localhost", "127.0.0.1"])
    assert not matches("127.0.0.1", ["*.0.0.1", "localhost"])
