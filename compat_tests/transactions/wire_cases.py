"""Requests about transactions, right and wrong, in every version: what a broker answers to them, in order.

A case is a function of a world and a version, which converses with the world's broker and gives back the answers that
are to be compared; None where the case does not exist in a version.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.transactions.wire_world import UNHURRIED_MS, Producer, World
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.described_transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TopicRequest,
)
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kbroker.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kbroker.wire.registry import API_KEYS
from tests.patience import eventually

Case = Callable[[World, int], Any]

CASES: dict[str, list[tuple[str, Case]]] = {}
"""By the name of the API."""


def api_key(api: str) -> int:
    """The key of the API of that name."""
    return next(key for key, each in API_KEYS.items() if each.name == api)


def cases_of(api: str) -> Callable[[Callable[[], Iterator[tuple[str, Case]]]], None]:
    """Enter the cases of an API."""

    def enter(function: Callable[[], Iterator[tuple[str, Case]]]) -> None:
        CASES[api] = list(function())

    return enter


_LOWEST = {"Produce": 3}
"""Where more is advertised than is served (KAFKA-18659)."""


def answers(world: World, api: str, versions: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """The broker's answers, by case and by the range of versions in which they are the same."""
    told: dict[str, dict[str, Any]] = {}
    for name, case in CASES[api]:
        by_version = []
        for version in range(max(versions[0], _LOWEST.get(api, 0)), versions[1] + 1):
            answer = case(world, version)
            if answer is not None:
                by_version.append((version, world.normal(answer)))
        told[name] = {}
        for answer, group in itertools.groupby(by_version, key=lambda each: each[1]):
            same = [version for version, _ in group]
            told[name][f"{same[0]}-{same[-1]}"] = answer
    return told


# -- FindCoordinator, InitProducerId -----------------------------------------------------------------


@cases_of("FindCoordinator")
def find_coordinator() -> Iterator[tuple[str, Case]]:
    def find(*keys: str, key_type: int = 1) -> Case:
        def ask(world: World, version: int) -> Any:
            if version < 1:
                return None
            names = [key.replace("*", world.mark) for key in keys]
            if version < 4:
                return world.ask(FindCoordinatorRequest(key=names[0], key_type=key_type), version)
            return world.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=names), version)

        return ask

    yield "transactional id", find("id-*")
    yield "empty id", find("")
    yield "two ids", find("id-*", "other-*")
    yield "unknown type", find("id-*", key_type=3)
    yield "negative type", find("id-*", key_type=-1)


def _init(
    world: World, version: int, name: str | None, timeout_ms: int = UNHURRIED_MS, producer_id: int = -1, epoch: int = -1
) -> Any:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    if version >= 3:
        request.producer_id, request.producer_epoch = producer_id, epoch
    return world.ask_with_ids(request, version)


@cases_of("InitProducerId")
def init_producer_id() -> Iterator[tuple[str, Case]]:
    yield "no id", lambda w, v: _init(w, v, None)
    yield "empty id", lambda w, v: _init(w, v, "")
    yield "new id", lambda w, v: _init(w, v, w.new_id())
    for timeout_ms in (0, -1, 1, 900_000, 900_001, 2**31 - 1):
        yield f"timeout {timeout_ms}", lambda w, v, t=timeout_ms: _init(w, v, w.new_id(), t)  # type: ignore[misc]
        yield f"no id, timeout {timeout_ms}", lambda w, v, t=timeout_ms: _init(w, v, None, t)  # type: ignore[misc]

    def again(world: World, version: int) -> Any:
        name = world.new_id()
        world.init(name)
        return [_init(world, version, name), _init(world, version, name)]

    yield "once more", again
    yield "producer id alone", lambda w, v: _init(w, v, w.new_id(), producer_id=5) if v >= 3 else None
    yield "epoch alone", lambda w, v: _init(w, v, w.new_id(), epoch=5) if v >= 3 else None
    yield "empty id, epoch alone", lambda w, v: _init(w, v, "", epoch=5) if v >= 3 else None
    yield "no id, expected", lambda w, v: _init(w, v, None, producer_id=5, epoch=3) if v >= 3 else None
    yield "new id, expected", lambda w, v: _init(w, v, w.new_id(), producer_id=5, epoch=3) if v >= 3 else None

    def expected(*epochs: int, other: bool = False, other_id: bool = False) -> Case:
        def ask(world: World, version: int) -> Any:
            if version < 3:
                return None
            producer = world.in_state("empty")
            if other:
                world.init(producer.transactional_id)
            producer_id = producer.producer_id + 1_000_000 if other_id else producer.producer_id
            return [
                _init(world, version, producer.transactional_id, producer_id=producer_id, epoch=producer.epoch + each)
                for each in epochs
            ]

        return ask

    yield "expected epoch", expected(0)
    yield "expected epoch, twice", expected(0, 0)
    yield "expected epoch, twice and on", expected(0, 0, 1, 0)
    yield "expected epoch before", expected(-1)
    yield "expected epoch after", expected(1)
    yield "expected after another", expected(0, other=True)
    yield "expected of another id", expected(0, other_id=True)

    def in_state(state: str, ends: int = 4) -> Case:
        def ask(world: World, version: int) -> Any:
            producer = world.in_state(state, ends)
            first = _init(world, version, producer.transactional_id)
            world.settle(producer)
            return [first, _init(world, version, producer.transactional_id)]

        return ask

    for state, ends in itertools.product(("ongoing", "committed", "aborted"), (4, 5)):
        yield f"{state} by version {ends}", in_state(state, ends)

    def recover(state: str) -> Case:
        def ask(world: World, version: int) -> Any:
            if version < 3:
                return None
            producer = world.in_state(state, 5)
            who = {"producer_id": producer.producer_id, "epoch": producer.epoch}
            first = _init(world, version, producer.transactional_id, **who)
            world.settle(producer)
            return [first, _init(world, version, producer.transactional_id, **who)]

        return ask

    for state in ("ongoing", "committed", "aborted"):
        yield f"{state}, expected", recover(state)


# -- AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------------------


def _topics(world: World, *topics: tuple[str, tuple[int, ...]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name or world.topic, partitions=list(each)) for name, each in topics]


def _add(
    world: World,
    version: int,
    producer: Producer,
    topics: list[AddPartitionsToTxnTopic],
    verify: bool = False,
    name: str | None = None,
    producer_id: int | None = None,
    epoch: int | None = None,
) -> Any:
    who = (
        producer.transactional_id if name is None else name,
        producer.producer_id if producer_id is None else producer_id,
        producer.epoch if epoch is None else epoch,
    )
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who[0],
            v3_and_below_producer_id=who[1],
            v3_and_below_producer_epoch=who[2],
            v3_and_below_topics=topics,
        )
    else:
        one = AddPartitionsToTxnTransaction(
            transactional_id=who[0], producer_id=who[1], producer_epoch=who[2], verify_only=verify, topics=topics
        )
        request = AddPartitionsToTxnRequest(transactions=[one])
    return world.ask(request, version)


@cases_of("AddPartitionsToTxn")
def add_partitions() -> Iterator[tuple[str, Case]]:
    def add(
        *topics: tuple[str, tuple[int, ...]],
        state: str = "empty",
        verify: bool = False,
        times: int = 1,
        epoch: int = 0,
        **who: Any,
    ) -> Case:
        def ask(world: World, version: int) -> Any:
            if verify and version < 4:
                return None
            producer = world.in_state(state, 5)
            told = [
                _add(
                    world,
                    version,
                    producer,
                    _topics(world, *(topics or (("", (0,)),))),
                    verify,
                    epoch=producer.epoch + epoch,
                    **who,
                )
                for _ in range(times)
            ]
            return [*told, world.state(producer)]

        return ask

    for verify in (False, True):
        verb = "verify" if verify else "add"
        for state in ("empty", "ongoing", "committed", "aborted"):
            yield f"{verb}, {state}", add(state=state, verify=verify)
            yield f"{verb} another, {state}", add(("", (1,)), state=state, verify=verify)
            for epoch in (-1, 1):
                yield f"{verb}, {state}, epoch {epoch:+}", add(state=state, verify=verify, epoch=epoch)
        yield f"{verb} one there and one not", add(("", (0, 1)), state="ongoing", verify=verify)
        yield f"{verb}, unknown id", add(verify=verify, name="nobody")
        yield f"{verb}, empty id", add(verify=verify, name="")
        yield f"{verb}, another producer", add(verify=verify, producer_id=10_000_000)
        yield f"{verb}, no producer", add(verify=verify, producer_id=-1)
        yield f"{verb}, unknown topic", add(("no-such-topic", (0,)), verify=verify)
        yield f"{verb}, unknown partitions", add(("", (0, 7, -1)), verify=verify)
        yield f"{verb}, unknown topic and unknown id", add(("no-such-topic", (0,)), verify=verify, name="nobody")
        yield f"{verb}, partition twice", add(("", (0, 0)), verify=verify)
        yield f"{verb}, no partitions", add(("", ()), verify=verify)
        yield f"{verb}, no partitions, unknown id", add(("", ()), verify=verify, name="nobody")
        yield f"{verb}, offsets topic", add(("__consumer_offsets", (0,)), verify=verify)
        yield f"{verb} twice", add(verify=verify, times=2)

    def nothing(world: World, version: int) -> Any:
        return _add(world, version, world.in_state("empty"), [])

    yield "no topics", nothing

    def several(world: World, version: int) -> Any:
        if version < 4:
            return None
        producers = [world.in_state("empty"), world.in_state("ongoing")]
        return world.ask(
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=each.transactional_id,
                        producer_id=each.producer_id,
                        producer_epoch=each.epoch,
                        verify_only=verify,
                        topics=_topics(world, ("", (0, 1))),
                    )
                    for each, verify in zip(producers, (False, True), strict=True)
                ]
            ),
            version,
        )

    yield "two transactions", several


@cases_of("AddOffsetsToTxn")
def add_offsets() -> Iterator[tuple[str, Case]]:
    def add(state: str = "empty", group: str = "group", epoch: int = 0, **who: Any) -> Case:
        def ask(world: World, version: int) -> Any:
            producer = world.in_state(state)
            request = AddOffsetsToTxnRequest(
                transactional_id=who.get("name", producer.transactional_id),
                producer_id=who.get("producer_id", producer.producer_id),
                producer_epoch=producer.epoch + epoch,
                group_id=group,
            )
            return [world.ask(request, version), world.state(producer)]

        return ask

    for state in ("empty", "ongoing", "committed", "aborted"):
        yield state, add(state)
    yield "empty group", add(group="")
    yield "unknown id", add(name="nobody")
    yield "empty id", add(name="")
    yield "another producer", add(producer_id=10_000_000)
    yield "epoch before", add(epoch=-1)
    yield "epoch after", add(epoch=1)


# -- EndTxn --------------------------------------------------------------------------------------------


def _end(world: World, version: int, producer: Producer, commit: bool, epoch: int = 0, **who: Any) -> Any:
    request = EndTxnRequest(
        transactional_id=who.get("name", producer.transactional_id),
        producer_id=who.get("producer_id", producer.producer_id),
        producer_epoch=producer.epoch + epoch,
        committed=commit,
    )
    answer = world.ask(request, version)
    world.settle(producer)
    return answer


@cases_of("EndTxn")
def end_txn() -> Iterator[tuple[str, Case]]:
    def end(state: str, commit: bool, epoch: int = 0, ends: int = 4, times: int = 1, **who: Any) -> Case:
        def ask(world: World, version: int) -> Any:
            producer = world.in_state(state, ends)
            told = [_end(world, version, producer, commit, epoch, **who) for _ in range(times)]
            return [*told, world.ask(DescribeTransactionsRequest(transactional_ids=[producer.transactional_id]), 0)]

        return ask

    for state, commit, epoch in itertools.product(
        ("empty", "ongoing", "committed", "aborted"), (True, False), (-1, 0, 1)
    ):
        verb = "commit" if commit else "abort"
        for ends in (4, 5) if state in ("committed", "aborted") else (4,):
            title = f"{verb}, {state}" + (f" by version {ends}" if state in ("committed", "aborted") else "")
            yield f"{title}, epoch {epoch:+}", end(state, commit, epoch, ends)
    for commit in (True, False):
        verb = "commit" if commit else "abort"
        yield f"{verb} twice", end("ongoing", commit, times=2)
        yield f"{verb} thrice", end("ongoing", commit, times=3)
        yield f"{verb}, unknown id", end("ongoing", commit, name="nobody")
        yield f"{verb}, empty id", end("ongoing", commit, name="")
        yield f"{verb}, another producer", end("ongoing", commit, producer_id=10_000_000)

    def both(first: bool) -> Case:
        def ask(world: World, version: int) -> Any:
            producer = world.in_state("ongoing")
            return [_end(world, version, producer, first), _end(world, version, producer, not first)]

        return ask

    yield "commit, then abort", both(True)
    yield "abort, then commit", both(False)


# -- Produce, and what is read of it -----------------------------------------------------------------------


@cases_of("Produce")
def produce() -> Iterator[tuple[str, Case]]:
    def one(state: str, *partitions: int, ends: int = 5, **fields: Any) -> Case:
        def ask(world: World, version: int) -> Any:
            topic = world.new_topic()
            producer = world.init(world.init().transactional_id)
            if state != "empty":
                world.add(producer, 0, topic=topic)
            if state in ("committed", "aborted"):
                world.end(producer, state == "committed", ends)
            changed = dict(fields)
            if "epoch" in changed:
                changed["epoch"] += producer.epoch
            request = world.produce_request(producer, version, *partitions, topic=topic, **changed)
            answer = world.ask_verified(request, version)
            for each in answer.responses if not isinstance(answer, str) else ():
                each.name, each.topic_id = "", bytes(16)  # by name or by id, as the version has it
            return [answer, world.state(producer)]

        return ask

    for state in ("empty", "ongoing", "committed", "aborted"):
        yield f"first batch, {state}", one(state)
        yield f"epoch before, {state}", one(state, epoch=-1)
        yield f"epoch after, {state}", one(state, epoch=1)
        yield f"another partition, {state}", one(state, 1)
        yield f"without the id, {state}", one(state, named=False)
        yield f"not in the transaction, {state}", one(state, transactional=False)
    yield "one partition in, one not", one("ongoing", 0, 1)
    yield "unknown partition", one("ongoing", 0, 9)
    yield "another producer", one("ongoing", producer_id=10_000_000)
    yield "sequence 5 first", one("ongoing", sequence=5)
    yield "sequence 5 first, nothing begun", one("empty", sequence=5)

    def retried(world: World, version: int) -> Any:
        topic = world.new_topic()
        producer = world.init()
        world.add(producer, 0, topic=topic)
        told = []
        for sequence in (0, 0, 1, 3, 0):
            request = world.produce_request(producer, version, topic=topic, sequence=sequence)
            told.append(world.ask_verified(request, version).responses[0].partition_responses)
            for each in told[-1]:
                each.log_append_time_ms = -1  # of a repeated batch Kafka tells its time even where that is the client's
        return told

    yield "repeated and missing sequences", retried

    def plain_in_open(world: World, version: int) -> Any:
        topic = world.new_topic()
        producer = world.init()
        world.add(producer, 0, topic=topic)
        told = []
        for transactional in (True, False):
            request = world.produce_request(
                producer, version, topic=topic, sequence=0 if transactional else 1, transactional=transactional
            )
            told.append(world.ask_verified(request, version).responses[0].partition_responses)
        return told

    yield "a batch beside the transaction", plain_in_open


def _written(world: World) -> tuple[str, list[Producer]]:
    """A topic whose partition 0 holds: aborted, committed, aborted and an open transaction, in turns."""
    topic = world.new_topic(1)
    first, second, third = (world.init() for _ in range(3))
    for producer, sequence in ((first, 0), (second, 0), (first, 1), (third, 0), (second, 1)):
        if sequence == 0:
            world.add(producer, 0, topic=topic)
        world.produce(producer, topic, sequence)
    world.end(first, False)
    world.end(second, True)
    world.add(first, 0, topic=topic)
    world.produce(first, topic, 2)
    return topic, [first, second, third]


def _fetch(world: World, topic: str, version: int, isolation: int, offset: int = 0) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=-1)
    name = topic if version < 13 else ""
    topic_id = world.topic_ids[topic] if version >= 13 else ZERO_UUID
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])],
        session_epoch=-1,
    )
    found = world.ask(request, version).responses[0].partitions[0]
    found.records = [
        (header.base_offset, header.last_offset, header.is_control, header.is_transactional, header.producer_epoch)
        for _, header in walk_headers(found.records or b"")
    ]
    if found.aborted_transactions is not None:
        found.aborted_transactions.sort(key=lambda each: (each.first_offset, each.producer_id))
    return found


@cases_of("Fetch")
def fetch() -> Iterator[tuple[str, Case]]:
    def read(isolation: int, offset: int) -> Case:
        def ask(world: World, version: int) -> Any:
            if version not in (4, 9, 12, 13, 17):
                return None
            topic, producers = _written(world)
            told = [_fetch(world, topic, version, isolation, offset)]
            world.end(producers[2], True)
            told.append(_fetch(world, topic, version, isolation, offset))
            world.end(producers[0], False)
            told.append(_fetch(world, topic, version, isolation, offset))
            return told

        return ask

    for isolation, offset in itertools.product((0, 1), (0, 3, 6)):
        yield f"{'committed' if isolation else 'all'} from {offset}", read(isolation, offset)


@cases_of("ListOffsets")
def list_offsets() -> Iterator[tuple[str, Case]]:
    def ask(isolation: int) -> Case:
        def lookup(world: World, version: int) -> Any:
            if version < 2:
                return None
            topic, producers = _written(world)

            def offset() -> Any:
                partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)]
                topics = [ListOffsetsTopic(name=topic, partitions=partitions)]
                request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
                return world.ask(request, version).topics[0].partitions

            told = [offset()]
            world.end(producers[2], True)
            told.append(offset())
            world.end(producers[0], False)
            return [*told, offset()]

        return lookup

    yield "latest of all", ask(0)
    yield "latest committed", ask(1)


# -- offsets -------------------------------------------------------------------------------------------------


def _commit(
    world: World,
    version: int,
    producer: Producer,
    group: str,
    *partitions: int,
    epoch: int = 0,
    offset: int = 7,
    metadata: str | None = "m",
    topic: str | None = None,
    **who: Any,
) -> Any:
    name = topic or world.topic
    topic_id = world.topic_ids.get(name, Uuid(b"\1" * 16))
    return world.ask_verified(
        TxnOffsetCommitRequest(
            transactional_id=who.pop("name", producer.transactional_id),
            group_id=group,
            producer_id=who.pop("producer_id", producer.producer_id),
            producer_epoch=producer.epoch + epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="" if version >= 6 else name,
                    topic_id=topic_id if version >= 6 else ZERO_UUID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index in partitions or (0,)
                    ],
                )
            ],
            **(who if version >= 3 else {}),
        ),
        version,
    )


def _offsets(world: World, group: str, stable: bool) -> Any:
    topics = [OffsetFetchRequestTopics(name=world.topic, partition_indexes=[0, 1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable)
    return world.ask(request, 8).groups[0].topics


@cases_of("TxnOffsetCommit")
def txn_offset_commit() -> Iterator[tuple[str, Case]]:
    def commit(state: str = "ongoing", *partitions: int, adds: bool = True, group: str = "", **fields: Any) -> Case:
        def ask(world: World, version: int) -> Any:
            producer = world.in_state(state, 5)
            name = group or f"group-{producer.transactional_id}"
            if adds:
                request = AddOffsetsToTxnRequest(
                    transactional_id=producer.transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    group_id=name,
                )
                eventually(lambda: world.ask(request, 3).error_code == 0)
            told = _commit(world, version, producer, name, *partitions, **fields)
            return [told, world.state(producer)]

        return ask

    for state in ("empty", "ongoing", "committed", "aborted"):
        yield f"{state}, offsets added", commit(state)
        yield f"{state}, offsets not added", commit(state, adds=False)
    for adds in (True, False):
        title = "added" if adds else "not added"
        yield f"{title}, epoch before", commit(adds=adds, epoch=-1)
        yield f"{title}, epoch after", commit(adds=adds, epoch=1)
        yield f"{title}, another producer", commit(adds=adds, producer_id=10_000_000)
        yield f"{title}, unknown id", commit(adds=adds, name="nobody")
        yield f"{title}, empty id", commit(adds=adds, name="")
        yield f"{title}, unknown topic", commit(adds=adds, topic="no-such-topic")
        yield f"{title}, unknown partitions", commit("ongoing", 0, 7, -1, adds=adds)
        yield f"{title}, member of no group", commit(adds=adds, generation_id_or_member_epoch=3, member_id="nobody")
        yield f"{title}, member without generation", commit(adds=adds, member_id="nobody")
    yield "empty group", lambda w, v: _commit(w, v, w.in_state("ongoing"), "")
    yield "metadata too large", commit(metadata="x" * 5000)
    yield "metadata null", commit(metadata=None)
    yield "partition twice", commit("ongoing", 0, 0)

    def followed(commits: bool) -> Case:
        def ask(world: World, version: int) -> Any:
            producer = world.init()
            group = f"group-{producer.transactional_id}"
            if version < 5:
                request = AddOffsetsToTxnRequest(
                    transactional_id=producer.transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    group_id=group,
                )
                eventually(lambda: world.ask(request, 3).error_code == 0)
            told = [_commit(world, version, producer, group)]
            told += [_offsets(world, group, stable) for stable in (False, True)]
            world.end(producer, commits)
            return told + [_offsets(world, group, stable) for stable in (False, True)]

        return ask

    yield "seen when committed", followed(True)
    yield "never seen when aborted", followed(False)


# -- WriteTxnMarkers ---------------------------------------------------------------------------------------------


@cases_of("WriteTxnMarkers")
def write_txn_markers() -> Iterator[tuple[str, Case]]:
    def write(
        *partitions: int,
        commit: bool = False,
        epoch: int = 0,
        coordinator_epoch: int = 100,
        transaction_version: int = 0,
        times: int = 1,
        topic: str | None = None,
        other: bool = False,
    ) -> Case:
        def ask(world: World, version: int) -> Any:
            made = world.new_topic()
            producer = world.init(world.init().transactional_id)
            world.add(producer, 0, topic=made)
            world.produce(producer, made, 0)
            marker = WritableTxnMarker(
                producer_id=producer.producer_id + 10_000_000 * other,
                producer_epoch=producer.epoch + epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                topics=[WritableTxnMarkerTopic(name=topic or made, partition_indexes=list(partitions or (0,)))],
                transaction_version=transaction_version if version >= 2 else 0,
            )
            told = [world.ask(WriteTxnMarkersRequest(markers=[marker]), version) for _ in range(times)]
            for each in told:
                for found in each.markers:
                    for named in found.topics:
                        named.name = named.name.replace(made, "TOPIC")
            return [*told, _fetch(world, made, 12, 1)]

        return ask

    yield "abort", write()
    yield "commit", write(commit=True)
    yield "abort twice", write(times=2)
    yield "epoch before", write(epoch=-1)
    yield "epoch after", write(epoch=1)
    yield "unknown partition", write(0, 9)
    yield "unknown topic", write(topic="no-such-topic")
    yield "a partition that has nothing", write(1)
    yield "another producer", write(other=True)
    yield "negative coordinator epoch", write(coordinator_epoch=-1)
    for epoch in (-1, 0, 1):
        yield f"transaction version 2, epoch {epoch:+}", write(epoch=epoch, transaction_version=2)
        yield f"transaction version 2, epoch {epoch:+}, twice", write(epoch=epoch, transaction_version=2, times=2)
    yield "no markers", lambda w, v: w.ask(WriteTxnMarkersRequest(), v)


# -- administration ------------------------------------------------------------------------------------------------


@cases_of("DescribeTransactions")
def describe_transactions() -> Iterator[tuple[str, Case]]:
    def describe(*states: str) -> Case:
        def ask(world: World, version: int) -> Any:
            names = [world.in_state(state).transactional_id for state in states]
            return world.ask(DescribeTransactionsRequest(transactional_ids=names), version)

        return ask

    for state in ("empty", "ongoing", "committed", "aborted"):
        yield state, describe(state)
    yield "several", describe("empty", "ongoing", "committed")
    yield "unknown", lambda w, v: w.ask(DescribeTransactionsRequest(transactional_ids=["nobody"]), v)
    yield "empty id", lambda w, v: w.ask(DescribeTransactionsRequest(transactional_ids=[""]), v)
    yield "none", lambda w, v: w.ask(DescribeTransactionsRequest(), v)
    yield (
        "the same twice",
        lambda w, v: w.ask(
            DescribeTransactionsRequest(transactional_ids=[w.in_state("ongoing").transactional_id] * 2), v
        ),
    )


@cases_of("ListTransactions")
def list_transactions() -> Iterator[tuple[str, Case]]:
    def listed(since: int = 0, **fields: Any) -> Case:
        def ask(world: World, version: int) -> Any:
            if version < since:
                return None
            own = [world.in_state(state) for state in ("empty", "ongoing", "committed")]
            if "duration_filter" in fields:
                made_ms = time.time_ns() // 1_000_000
                eventually(lambda: time.time_ns() // 1_000_000 > made_ms)  # the filter is for longer ones, strictly
            values: dict[str, Any] = {
                key: [own[each].producer_id for each in value] if key == "producer_id_filters" else value
                for key, value in fields.items()
            }
            if "transactional_id_pattern" in values:
                values["transactional_id_pattern"] = values["transactional_id_pattern"].replace(
                    "*ID*", own[0].transactional_id
                )
            answer = world.ask(ListTransactionsRequest(**values), version)
            ids = [each.transactional_id for each in own]
            answer.transaction_states = [
                (ids.index(each.transactional_id), each.transaction_state)
                for each in answer.transaction_states
                if each.transactional_id in ids
            ]
            return answer

        return ask

    yield "all", listed()
    yield "by state", listed(state_filters=["Ongoing"])
    yield "by states", listed(state_filters=["Ongoing", "CompleteCommit"])
    yield "unknown state", listed(state_filters=["Nowhere"])
    yield "unknown and known state", listed(state_filters=["Nowhere", "Empty"])
    yield "state in other letters", listed(state_filters=["ongoing"])
    yield "states that nobody is in", listed(state_filters=["Dead", "PrepareEpochFence", "PrepareCommit"])
    yield "by producer", listed(producer_id_filters=[0, 2])
    yield "by producer and state", listed(producer_id_filters=[0, 1], state_filters=["Ongoing"])
    yield "by duration", listed(1, duration_filter=3_600_000)
    yield "by no duration", listed(1, duration_filter=0)
    yield "by pattern", listed(2, transactional_id_pattern="*ID*")
    yield "by wider pattern", listed(2, transactional_id_pattern="id-.*")
    yield "by part of a name", listed(2, transactional_id_pattern="id-")
    yield "bad pattern", listed(2, transactional_id_pattern="(")
    yield "empty pattern", listed(2, transactional_id_pattern="")


@cases_of("DescribeProducers")
def describe_producers() -> Iterator[tuple[str, Case]]:
    def ask(world: World, version: int) -> Any:
        topic, producers = _written(world)
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        told = [world.ask(request, version).topics[0].partitions]
        world.end(producers[2], True)
        world.end(producers[0], False)
        return [*told, world.ask(request, version).topics[0].partitions]

    yield "open and ended", ask
