"""The same raw requests to Apache Kafka 4.4.0 and to the broker under test: the decoded answers must be equal.

For each (API, version) that the broker advertises, as many random requests as KBROKER_WIRE_CASES says (32), from the
seed KBROKER_WIRE_SEED (0); what may differ is in allowed.py. Against ``--broker apache`` two Apache Kafkas are
compared, which shows that nothing here depends on the run. ``KBROKER_WIRE_ALL=1`` prints all differences to standard
output, not the first of each kind.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import Broker
from compat_tests.coordinators import await_group_coordinators, await_transaction_coordinators
from compat_tests.wire_differential.allowed import ALLOWED
from compat_tests.wire_differential.dialogue import Dialogue, differences
from compat_tests.wire_differential.generator import EXCLUDED, GROUP_APIS, SOME_TIME, TOPICS, Generator
from compat_tests.wire_differential.judged import beside_apache_kafka
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.messages.transactions import InitProducerIdRequest
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.registry import API_KEYS
from tests.patience import eventually

CASES = int(os.environ.get("KBROKER_WIRE_CASES", "32"))
SEED = int(os.environ.get("KBROKER_WIRE_SEED", "0"))


def prepare(bootstrap: str) -> Dialogue:
    """A conversation with a broker that has the topics of the generator and the same records in them."""
    talk = Dialogue(bootstrap)
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, (partitions, configs) in TOPICS.items()
    ]
    made = talk.ask(CreateTopicsRequest(topics=topics), 7)
    assert {topic.error_code for topic in made.topics} == {0}, made
    talk.topic_ids = {topic.name: bytes(topic.topic_id) for topic in made.topics}

    def led() -> bool:
        wanted = [MetadataRequestTopic(name=name) for name in TOPICS]
        told = talk.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12)
        return all(not t.error_code and all(p.leader_id >= 0 for p in t.partitions) for t in told.topics)

    eventually(led, "leaders of all partitions")
    # Apache Kafka tells of a leader a moment before it is one; what it refuses until then, it would lack later.
    eventually(lambda: _all_lead(talk), "every leader to answer")
    for first in (0, 5):
        batch = build_batch(
            [Record(0, SOME_TIME + 1000 * n, b"k%d" % n, b"v%d" % n, ()) for n in range(first, first + 5)]
        )
        data = [PartitionProduceData(index=0, records=memoryview(batch))]
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="wd-filled", partition_data=data)]
        )

        written = talk.ask(request, 9).responses[0].partition_responses[0]
        assert written.error_code == 0, written
    await_group_coordinators(bootstrap)
    await_transaction_coordinators(bootstrap)
    for name in (None, "wd-somebody"):
        ids = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        eventually(lambda ids=ids: talk.ask(ids, 4).error_code == 0, "producer ids")  # type: ignore[misc]
    return talk


def _all_lead(talk: Dialogue) -> bool:
    """Whether every partition of the generator's topics is told about by its leader."""
    topics = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(partitions)]
        )
        for name, (partitions, _) in TOPICS.items()
    ]
    told = talk.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    return not any(partition.error_code for topic in told.topics for partition in topic.partitions)


@dataclass
class Pair:
    """The broker under test and the judge, in the same state."""

    ours: Dialogue
    theirs: Dialogue
    versions: dict[int, tuple[int, int]]
    now: int


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        # Of their own, since answers about all topics depend on what other tests made.
        addresses = stack.enter_context(beside_apache_kafka(broker))
        ours, theirs = map(prepare, addresses)
        stack.callback(ours.close)
        stack.callback(theirs.close)
        yield Pair(ours, theirs, served_apis(ours.bootstrap), int(time.time() * 1000))


def _apis() -> list[object]:
    return [
        pytest.param(key, id=api.name, marks=pytest.mark.feature("wire", "Answers equal to Apache Kafka's", api.name))
        for key, api in API_KEYS.items()
        if "broker" in api.listeners and key not in GROUP_APIS and key not in EXCLUDED
    ]


@pytest.mark.parametrize("key", _apis())
def test_answers(key: int, pair: Pair) -> None:
    api = API_KEYS[key]
    if key not in pair.versions:
        pytest.skip(f"{api.name} is not served")
    judged = served_apis(pair.theirs.bootstrap)
    assert key in judged and pair.versions[key] == judged[key], "the versions advertised differ"
    found: dict[tuple[str, str, str], str] = {}
    total = 0
    for version in range(max(pair.versions[key][0], api.valid_versions.lowest), pair.versions[key][1] + 1):
        for number, request in enumerate(Generator(key, version, SEED, pair.now).requests(CASES)):
            total += 1
            ours = pair.ours.plain(pair.ours.ask(request, version))
            theirs = pair.theirs.plain(pair.theirs.ask(request, version))
            for path, mine, other in differences(ours, theirs):
                if any(allowed.covers(api.name, path, mine, other) for allowed in ALLOWED):
                    continue
                kind = (path, _brief(mine), _brief(other))
                text = (
                    f"v{version} request {number}, {path or 'answer'}:\n    kbroker: {mine!r:.400}"
                    f"\n    Apache: {other!r:.400}"
                    f"\n    request: {_brief_request(request)}"
                )
                if os.environ.get("KBROKER_WIRE_ALL"):
                    print(text)
                found.setdefault(kind, text)
    if found:
        pytest.fail(
            f"{len(found)} kinds of difference in {total} requests of {api.name}\n"
            + "\n".join(list(found.values())[:12]),
            pytrace=False,
        )


def _brief_request(request: object) -> str:
    text = re.sub(r"x{20,}", "xxx...", repr(request))
    text = re.sub(r"(b'\\x00\S*?'|<memory at \w+>)", "...", text)
    return re.sub(r"\b(topic_id=\.\.\.,? ?)", "", text)[:900]


def _brief(value: object) -> str:
    """The mark of a kind of difference: a small value itself, else its type."""
    text = repr(value)
    return text if len(text) < 60 else type(value).__name__
