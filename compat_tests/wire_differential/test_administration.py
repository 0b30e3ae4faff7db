"""The same administrative requests, in the same order, to Apache Kafka 4.4.0 and to the broker under test.

What changes the cluster (features, configurations of groups and brokers, reassignments) depends on what was done
before, so it cannot be asked at random as in ``test_differential.py``: here each step's answers must be equal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.wire_differential.dialogue import Dialogue, differences
from compat_tests.wire_differential.judged import beside_apache_kafka
from kbroker.wire.messages import configs as wire
from kbroker.wire.messages import reassignments
from kbroker.wire.messages import topics as create
from kbroker.wire.messages import update_features as features
from tests.patience import SHORT
from tests.test_config_dynamic import CLASSES, MODES, WRONG_PLACE, other_value

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DEFAULT = 5
INVALID_REQUEST = 42
UPGRADE, SAFE, UNSAFE = 1, 2, 3
MIN_ISR = "min.insync.replicas"
ELR = "eligible.leader.replicas.version"
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"

Pair = tuple[Dialogue, Dialogue]


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[Pair]:
    """The broker under test and the judge, each with the topic ``adm`` of two partitions."""
    with contextlib.ExitStack() as stack:
        ours, theirs = stack.enter_context(beside_apache_kafka(broker))
        talks = (Dialogue(ours), Dialogue(theirs))
        topic = create.CreatableTopic(name="adm", num_partitions=2, replication_factor=1)
        for talk in talks:
            stack.callback(talk.close)
            made = talk.ask(create.CreateTopicsRequest(topics=[topic]), 7)
            assert made.topics[0].error_code == 0
        yield talks


def compare(pair: Pair, request: Any, version: int) -> Any:
    """The answer that both give. Apache Kafka's brokers learn of a change a moment after it is answered."""
    deadline = time.monotonic() + SHORT
    while True:
        ours, theirs = (talk.plain(talk.ask(request, version)) for talk in pair)
        found = list(differences(ours, theirs))
        if not found:
            return ours
        if time.monotonic() > deadline or isinstance(request, WRITES):
            lines = [f"{path or 'answer'}: kbroker {mine!r}, Apache {other!r}" for path, mine, other in found]
            pytest.fail("\n".join([*lines, f"of {request!r:.600}"]), pytrace=False)
        time.sleep(0.1)


WRITES = (
    features.UpdateFeaturesRequest,
    wire.IncrementalAlterConfigsRequest,
    wire.AlterConfigsRequest,
    reassignments.AlterPartitionReassignmentsRequest,
)


def update(*wanted: tuple[str, int, int], validate_only: bool = False) -> features.UpdateFeaturesRequest:
    return features.UpdateFeaturesRequest(
        feature_updates=[
            features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in wanted
        ],
        validate_only=validate_only,
    )


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> wire.IncrementalAlterConfigsRequest:
    entries = [
        wire.IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs
    ]
    resource = wire.IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return wire.IncrementalAlterConfigsRequest(resources=[resource])


def replace(kind: int, name: str, **configs: str) -> wire.AlterConfigsRequest:
    entries = [wire.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return wire.AlterConfigsRequest(resources=[resource])


def show(kind: int, name: str, *keys: str) -> wire.DescribeConfigsRequest:
    resource = wire.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


feature = pytest.mark.feature


@feature("wire", "Answers equal to Apache Kafka's", "UpdateFeatures")
def test_features(pair: Pair) -> None:
    group = "group.version"
    refused: list[tuple[str, int, int]] = [
        ("foo.version", 1, UPGRADE),
        ("foo.version", 0, UPGRADE),
        ("", 1, UPGRADE),
        (group, 2, UPGRADE),
        (group, -1, UPGRADE),
        (group, 0, UPGRADE),
        ("metadata.version", 31, UPGRADE),
        ("metadata.version", 6, UPGRADE),
        ("metadata.version", 0, UPGRADE),
        ("metadata.version", 29, UPGRADE),
        ("kraft.version", 2, UPGRADE),
        ("kraft.version", 0, UPGRADE),
    ]
    for version in (0, 1, 2):
        compare(pair, update(), version)
        compare(pair, update((group, 1, UPGRADE)), version)
        compare(pair, update(("metadata.version", 30, UPGRADE), ("kraft.version", 1, UPGRADE)), version)
        for wanted in refused:
            assert compare(pair, update(wanted), version)["error_code"]
            compare(pair, update((group, 1, UPGRADE), wanted), version)
    for version in (1, 2):
        compare(pair, update((group, 0, SAFE), validate_only=True), version)
        for wanted in (
            (group, 1, 0),
            (group, 1, 9),
            (group, 1, SAFE),
            ("metadata.version", 29, SAFE),
            ("metadata.version", 21, UNSAFE),
            ("kraft.version", 0, SAFE),
        ):
            compare(pair, update(wanted), version)
    compare(pair, update((group, 0, SAFE)), 2)
    compare(pair, update((group, 1, SAFE)), 2)
    compare(pair, update((group, 1, UPGRADE)), 2)


@feature("wire", "Answers equal to Apache Kafka's", "min.insync.replicas with eligible leader replicas")
def test_min_insync_replicas(pair: Pair) -> None:
    def look() -> None:
        compare(pair, show(BROKER, ""), 4)
        compare(pair, show(BROKER, "1", MIN_ISR), 4)
        compare(pair, show(TOPIC, "adm", MIN_ISR), 4)

    look()
    for request in (
        change(BROKER, "1", (MIN_ISR, SET, "1")),
        change(BROKER, "1", (MIN_ISR, DELETE, None)),
        change(BROKER, "", (MIN_ISR, DELETE, None)),
        change(BROKER, "", (MIN_ISR, SET, "0")),
    ):
        assert compare(pair, request, 1)["responses"][0]["error_code"]
    compare(pair, replace(BROKER, ""), 2)
    compare(pair, change(BROKER, "", (MIN_ISR, SET, "2")), 1)
    compare(pair, change(TOPIC, "adm", (MIN_ISR, SET, "1")), 1)
    look()
    compare(pair, change(TOPIC, "adm", (MIN_ISR, DELETE, None)), 1)
    compare(pair, update((ELR, 0, SAFE)), 2)
    compare(pair, change(BROKER, "1", (MIN_ISR, SET, "1")), 1)
    compare(pair, change(BROKER, "", (MIN_ISR, DELETE, None)), 1)
    look()
    compare(pair, update((ELR, 1, UPGRADE)), 2)
    look()


@feature("wire", "Answers equal to Apache Kafka's", "configurations of groups")
def test_group_configs(pair: Pair) -> None:
    def look() -> None:
        compare(pair, show(GROUP, "g"), 4)
        compare(pair, wire.ListConfigResourcesRequest(resource_types=[GROUP]), 1)

    look()
    compare(pair, change(GROUP, "g", (SESSION, SET, "50000")), 1)
    look()
    for wanted in (
        (SESSION, SET, "44999"),
        (SESSION, SET, "60001"),
        (HEARTBEAT, SET, "1"),
        (HEARTBEAT, SET, "15001"),
        (ASSIGNMENT, SET, "15001"),
        (ASSIGNMENT, SET, "-1"),
        (SESSION, SET, "soon"),
        (SESSION, SET, None),
        (SESSION, APPEND, "1"),
        ("foo", SET, "1"),
    ):
        assert compare(pair, change(GROUP, "g", wanted), 1)["responses"][0]["error_code"]
    compare(pair, change(GROUP, "g", ("foo", DELETE, None)), 1)
    compare(pair, change(GROUP, "", (SESSION, SET, "50000")), 1)
    compare(pair, show(GROUP, "", SESSION), 4)
    compare(pair, show(GROUP, "g", "foo"), 4)
    look()
    compare(pair, replace(GROUP, "g", consumer_heartbeat_interval_ms="6000"), 2)
    compare(pair, replace(GROUP, "g", consumer_heartbeat_interval_ms="60000"), 2)
    look()
    for value in ("2000", "20000"):
        compare(pair, change(BROKER, "", (f"group.{ASSIGNMENT}", SET, value)), 1)
    compare(pair, change(BROKER, "", (f"group.{SESSION}", SET, "50000")), 1)
    look()
    compare(pair, change(BROKER, "", (f"group.{ASSIGNMENT}", DELETE, None)), 1)
    compare(pair, change(GROUP, "g", (HEARTBEAT, DELETE, None)), 1)
    look()


@feature("wire", "Answers equal to Apache Kafka's", "every property of a broker and of a topic")
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_property(pair: Pair, version: int) -> None:
    """Of a broker, but for the values of those that either node's file sets."""

    def described(talk: Dialogue) -> dict[str, Any]:
        configs = talk.plain(talk.ask(show(BROKER, "1"), version))["results"][0]["configs"]
        return {config["name"]: config for config in configs}

    ours, theirs = (described(talk) for talk in pair)
    assert set(ours) == set(theirs) and len(theirs) == 350
    by_default = [name for name in theirs if {ours[name]["config_source"], theirs[name]["config_source"]} == {DEFAULT}]
    assert len(by_default) > 300
    assert [(ours[name], theirs[name]) for name in by_default if ours[name] != theirs[name]] == []
    compare(pair, show(TOPIC, "adm"), version)


@feature("wire", "Answers equal to Apache Kafka's", "properties of brokers that change at run time")
def test_every_dynamic_property(pair: Pair) -> None:
    """For one broker and for all: each is described, and taken or refused, as in Apache Kafka, alone and together."""

    def tried(talk: Dialogue, name: str, *configs: tuple[str, str]) -> tuple[int, str]:
        request = change(BROKER, name, *((key, SET, value) for key, value in configs))
        request.validate_only = True
        [answer] = talk.plain(talk.ask(request, 1))["responses"]
        return answer["error_code"], answer["error_message"] or ""

    def refused(talk: Dialogue, name: str, names: Sequence[str]) -> set[str]:
        """Those that the answer to all at once names."""
        configs = [(each, other_value(each) if each in MODES else "1") for each in names]
        code, message = tried(talk, name, *configs)
        assert code, message
        return set(message.partition("[")[2].rstrip("]").split(", "))

    ours, theirs = pair
    described = ours.plain(ours.ask(show(BROKER, "1"), 4))["results"][0]["configs"]
    names = sorted({each["name"] for each in described} | MODES.keys())
    for name in ("1", ""):
        assert refused(ours, name, names) == refused(theirs, name, names) == set(names) - MODES.keys()
    taken: dict[str, list[str]] = {"1": [], "": []}
    for place, names_taken in taken.items():
        for name in sorted(MODES):
            found, wanted = (tried(talk, place, (name, other_value(name))) for talk in pair)
            assert found[0] == wanted[0], (place, name, found, wanted)
            names_taken += [] if wanted[0] else [name]
    assert {*taken["1"], *taken[""]} == MODES.keys() - WRONG_PLACE - CLASSES
    assert {name for name in MODES if MODES[name] == "per-broker"}.isdisjoint(taken[""])
    taken["1"].remove("cordoned.log.dirs")  # the controllers would hear of it, and of its end, at some time later

    def look() -> None:
        compare(pair, show(BROKER, "1", *taken["1"]), 4)
        compare(pair, show(BROKER, ""), 4)

    look()
    for place, names_taken in (("", taken[""]), ("1", taken["1"])):
        configs = [(name, SET, other_value(name)) for name in names_taken]
        assert not compare(pair, change(BROKER, place, *configs), 1)["responses"][0]["error_code"]
        look()
    for place, names_taken in (("", taken[""]), ("1", taken["1"])):
        # That of all brokers stays with eligible leader replicas (KIP-966).
        gone = [(name, SET, "1") if name == MIN_ISR else (name, DELETE, None) for name in names_taken]
        assert not compare(pair, change(BROKER, place, *gone), 1)["responses"][0]["error_code"]
        look()


@feature("wire", "Answers equal to Apache Kafka's", "levels of loggers")
def test_broker_loggers(pair: Pair) -> None:
    """The root is the one logger that both have."""
    for level in ("FATAL", "ERROR", "WARN", "TRACE", "DEBUG", "INFO"):
        compare(pair, change(BROKER_LOGGER, "1", ("root", SET, level)), 1)
        assert compare(pair, show(BROKER_LOGGER, "1", "root"), 4)["results"][0]["configs"][0]["value"] == level
    for wanted in (
        ("root", SET, "LOUD"),
        ("root", SET, "info"),
        ("root", SET, ""),
        ("root", SET, None),
        ("root", DELETE, None),
        ("root", DELETE, "INFO"),
        ("root", APPEND, "INFO"),
        ("root", SUBTRACT, "INFO"),
        ("no.such.Logger", SET, "INFO"),
        ("no.such.Logger", SET, "LOUD"),
        ("no.such.Logger", DELETE, None),
    ):
        assert compare(pair, change(BROKER_LOGGER, "1", wanted), 1)["responses"][0]["error_code"]
    compare(pair, change(BROKER_LOGGER, "1", ("root", SET, "INFO"), ("root", SET, "WARN")), 1)
    compare(pair, change(BROKER_LOGGER, "1"), 1)
    for name in ("2", "one", ""):
        compare(pair, change(BROKER_LOGGER, name, ("root", SET, "WARN")), 1)
        compare(pair, show(BROKER_LOGGER, name), 4)
    compare(pair, replace(BROKER_LOGGER, "1", root="WARN"), 2)
    for version in (1, 2, 3, 4):
        compare(pair, show(BROKER_LOGGER, "1", "root", "no.such.Logger"), version)
    compare(pair, wire.ListConfigResourcesRequest(resource_types=[BROKER_LOGGER]), 1)


@feature("wire", "Answers equal to Apache Kafka's", "subscriptions to clients' metrics")
def test_client_metrics(pair: Pair) -> None:
    def look() -> None:
        for version in (1, 4):
            compare(pair, show(CLIENT_METRICS, "s"), version)
        compare(pair, wire.ListConfigResourcesRequest(), 0)
        compare(pair, wire.ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]), 1)

    look()
    compare(pair, change(CLIENT_METRICS, "s", ("interval.ms", SET, "1000"), ("metrics", SET, "a., b.")), 1)
    look()
    for wanted in (
        ("interval.ms", SET, "99"),
        ("interval.ms", SET, "3600001"),
        ("interval.ms", SET, "soon"),
        ("interval.ms", SET, ""),
        ("interval.ms", SET, None),
        ("metrics", SET, "a,"),
        ("metrics", APPEND, "c."),
        ("metrics", SUBTRACT, "a."),
        ("match", SET, "Java"),
        ("match", SET, "client=a"),
        ("match", SET, "client_id="),
        ("match", SET, "client_id=a=b"),
        ("foo", SET, "1"),
    ):
        assert compare(pair, change(CLIENT_METRICS, "s", wanted), 1)["responses"][0]["error_code"]
    for match in ("client_id=[", "client_id=\\y"):
        wish = change(CLIENT_METRICS, "s", ("match", SET, match))
        mine, other = (talk.plain(talk.ask(wish, 1))["responses"][0] for talk in pair)
        other["error_message"] += ": kbroker matches with RE2, which does not take this"
        assert mine == other
    compare(pair, change(CLIENT_METRICS, "s", ("foo", DELETE, None)), 1)
    compare(pair, change(CLIENT_METRICS, "", ("interval.ms", SET, "1000")), 1)
    compare(pair, show(CLIENT_METRICS, ""), 4)
    look()
    for metrics in ("a,a", "*", "b., a.,b."):
        compare(pair, change(CLIENT_METRICS, "s", ("metrics", SET, metrics)), 1)
        look()
    compare(pair, change(TOPIC, "adm", ("cleanup.policy", SET, "compact,delete,compact")), 1)
    compare(pair, show(TOPIC, "adm", "cleanup.policy"), 4)
    compare(pair, change(TOPIC, "adm", ("cleanup.policy", DELETE, None)), 1)
    for match in ("client_id=a=", "client_source_port=90.., client_software_name =[a-z]*", ""):
        compare(pair, change(CLIENT_METRICS, "s", ("match", SET, match)), 1)
        look()
    compare(pair, replace(CLIENT_METRICS, "s", interval_ms="2000"), 2)
    compare(pair, replace(CLIENT_METRICS, "s", interval_ms="2"), 2)
    look()
    compare(pair, change(CLIENT_METRICS, "s", ("interval.ms", DELETE, None)), 1)
    look()


@feature("wire", "Answers equal to Apache Kafka's", "reassignments in order")
def test_reassignments(pair: Pair) -> None:
    wishes: list[tuple[str, int, list[int] | None]] = [
        ("adm", 0, [1]),
        ("adm", 0, [2]),
        ("adm", 0, [1, 2]),
        ("adm", 0, [1, 1]),
        ("adm", 0, []),
        ("adm", 0, None),
        ("adm", 7, [1]),
        ("nope", 0, [1]),
        ("nope", 0, None),
        ("", 0, [1]),
    ]
    topics = [
        reassignments.ReassignableTopic(
            name=name, partitions=[reassignments.ReassignablePartition(partition_index=index, replicas=replicas)]
        )
        for name, index, replicas in wishes
    ]
    for version in (0, 1):
        compare(pair, reassignments.AlterPartitionReassignmentsRequest(), version)
        compare(pair, reassignments.AlterPartitionReassignmentsRequest(topics=topics), version)
    compare(
        pair, reassignments.AlterPartitionReassignmentsRequest(topics=topics, allow_replication_factor_change=False), 1
    )
    compare(pair, reassignments.ListPartitionReassignmentsRequest(topics=None), 0)
