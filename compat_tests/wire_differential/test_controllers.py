"""The controllers' listener, which Kafka's tools talk to with --bootstrap-controller: what it serves, and the same
requests there to Apache Kafka 4.4.0 and to the broker under test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from compat_tests.clients import skip_without
from compat_tests.wire_differential.dialogue import Dialogue
from compat_tests.wire_differential.test_administration import (
    BROKER,
    DELETE,
    GROUP,
    SAFE,
    SESSION,
    SET,
    TOPIC,
    change,
    compare,
    replace,
    show,
    update,
)
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.registry import API_KEYS

LOGGER = 8
THREADS = "log.cleaner.threads"

Pair = tuple[Dialogue, Dialogue]


@pytest.fixture(scope="module")
def controllers(broker: Broker) -> Iterator[tuple[str, str]]:
    """The controllers' listeners of the broker under test and of the judge, neither of them used before."""
    skip_without("java")
    if not isinstance(broker, ApacheBroker | KbrokerBroker):
        pytest.skip("for one node whose controller is known")
    with contextlib.ExitStack() as stack:
        made: list[ApacheBroker | KbrokerBroker] = [type(broker)(), ApacheBroker()]
        for node in made:
            stack.callback(node.stop)
        yield made[0].controllers, made[1].controllers


@pytest.fixture
def pair(controllers: tuple[str, str]) -> Iterator[Pair]:
    """A conversation with each controller."""
    talks = Dialogue(controllers[0]), Dialogue(controllers[1])
    yield talks
    for talk in talks:
        talk.close()


feature = pytest.mark.feature


@feature("wire", "Answers equal to Apache Kafka's", "APIs of the controllers' listener")
def test_what_is_served(controllers: tuple[str, str]) -> None:
    ours, theirs = (
        {API_KEYS[key].name: versions for key, versions in served_apis(each).items()} for each in controllers
    )
    assert len(theirs) == 42
    assert ours == theirs


@feature("wire", "Answers equal to Apache Kafka's", "configurations through the controllers' listener")
def test_configs(pair: Pair) -> None:
    def look() -> None:
        for version in (1, 2, 3, 4):
            for name in ("1", "", "9", "x", "-1"):
                compare(pair, show(BROKER, name, THREADS, "node.id", "process.roles"), version)
        compare(pair, show(BROKER, ""), 4)
        compare(pair, show(TOPIC, "missing", "retention.ms"), 4)
        compare(pair, show(TOPIC, "bad name"), 4)
        compare(pair, show(GROUP, "g", SESSION), 4)
        compare(pair, show(GROUP, ""), 4)

    look()
    # No value that is wrong: Apache Kafka's controllers take any for a broker's property, kbroker's judge it.
    for version in (0, 1):
        for name in ("1", "", "9", "x", "-1"):
            compare(pair, change(BROKER, name, (THREADS, SET, "2")), version)
            compare(pair, change(BROKER, name, ("no.such.property", SET, "2")), version)
        compare(pair, change(GROUP, "g", (SESSION, SET, "50000")), version)
        compare(pair, change(TOPIC, "missing", ("retention.ms", SET, "5")), version)
        look()
        for name in ("1", "", "9"):
            for key in (THREADS, "no.such.property"):
                compare(pair, change(BROKER, name, (key, DELETE, None)), version)
        compare(pair, change(GROUP, "g", (SESSION, DELETE, None)), version)
        look()
    for version in (0, 1, 2):
        for name in ("1", "9"):
            compare(pair, replace(BROKER, name, log_cleaner_threads="2"), version)
        look()
        compare(pair, replace(BROKER, "1"), version)
        look()


@feature("wire", "Answers equal to Apache Kafka's", "loggers through the controllers' listener")
def test_loggers(pair: Pair) -> None:
    for name in ("", "9", "x"):
        compare(pair, show(LOGGER, name), 4)
        compare(pair, change(LOGGER, name, ("root", SET, "INFO")), 1)
    compare(pair, change(LOGGER, "1", ("root", SET, "LOUD")), 1)
    compare(pair, change(LOGGER, "1", ("root", SET, "INFO")), 1)
    compare(pair, show(LOGGER, "1", "root"), 4)


@feature("wire", "Answers equal to Apache Kafka's", "features through the controllers' listener")
@pytest.mark.parametrize("version", [1, 2])
def test_features_that_are_off(pair: Pair, version: int) -> None:
    """The request of ``kafka-features downgrade --release-version``, but without another ``metadata.version``."""

    def ask(*wanted: tuple[str, int, int]) -> Any:
        return compare(pair, update(*wanted), version)

    rest = [("group.version", 1, SAFE), ("kraft.version", 1, SAFE), ("transaction.version", 2, SAFE)]
    told = ask(("share.version", 0, SAFE), ("streams.version", 0, SAFE), *rest)
    assert told["error_code"] == 0
    ask(("share.version", 0, SAFE), ("metadata.version", 29, SAFE))
    ask(("foo.version", 0, SAFE))


@feature("wire", "Answers equal to Apache Kafka's", "DescribeCluster of the controllers' listener")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_cluster(pair: Pair, version: int) -> None:
    for kind in (1, 2, 3) if version else (1,):
        compare(pair, DescribeClusterRequest(endpoint_type=kind), version)
