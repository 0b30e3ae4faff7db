"""Random sequences of requests that build on each other, to Apache Kafka 4.4.0 and to the broker under test at once.

KBROKER_SEQUENCES says how many (1), from the seed KBROKER_SEQUENCE_SEED (0) on. A sequence ends with its first
difference, as all that follows builds on it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker
from compat_tests.coordinators import await_group_coordinators, await_transaction_coordinators
from compat_tests.wire_differential.allowed import ALLOWED
from compat_tests.wire_differential.dialogue import Dialogue, differences
from compat_tests.wire_differential.judged import beside_apache_kafka
from compat_tests.wire_differential.sequence_world import World, only_of
from compat_tests.wire_differential.sequences import Sequence

COUNT = int(os.environ.get("KBROKER_SEQUENCES", "1"))
FIRST = int(os.environ.get("KBROKER_SEQUENCE_SEED", "0"))
REQUESTS = 90
OPTIONS = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
ALL_OF_A_KIND = frozenset({"ListGroups", "ListTransactions"})
"""APIs whose answers have what other sequences have left."""


@pytest.fixture(scope="module")
def worlds(broker: Broker) -> Iterator[tuple[World, World]]:
    with contextlib.ExitStack() as stack:
        addresses = stack.enter_context(beside_apache_kafka(broker, *OPTIONS))
        talks = [Dialogue(address) for address in addresses]
        for address, talk in zip(addresses, talks, strict=True):
            stack.callback(talk.close)
            await_group_coordinators(address)
            await_transaction_coordinators(address)
        ours, theirs = map(World, talks)
        for world in (ours, theirs):
            world.make_barriers()
        yield ours, theirs


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "requests that build on each other")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_sequence(seed: int, worlds: tuple[World, World]) -> None:
    sequence = Sequence(seed)
    told: list[str] = []
    for number in range(REQUESTS):
        step = sequence.next()
        ours, theirs = (step.ask(world) for world in worlds)
        if step.api in ALL_OF_A_KIND:
            ours, theirs = (only_of(answer, sequence.prefix) for answer in (ours, theirs))
        told.append(f"{number}. {step.api} v{step.version} {step.told(worlds[0])!r:.500}\n    {theirs!r:.300}")
        found = [
            f"{path}: kbroker {mine!r:.400}, Apache Kafka {other!r:.400}"
            for path, mine, other in differences(ours, theirs)
            if not any(allowed.covers(step.api, path, mine, other) for allowed in ALLOWED)
        ]
        if found:
            differs, before = "\n".join(found), "\n".join(told)
            pytest.fail(f"seed {seed}, request {number}:\n{differs}\nafter\n{before}", pytrace=False)
