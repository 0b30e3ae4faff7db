"""Clients with a quota are told for how long they are throttled, and wait that long; others do not notice.

The clock stands still but for what a test lets pass, so that each throttle time is known to the millisecond.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kbroker.errors import ErrorCode
from kbroker.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node, values


@asynccontextmanager
async def node(path: Path, clock: MockClock, **properties: str) -> AsyncIterator[Node]:
    """A node that has started by a clock that ran until then."""
    clock.rate = 1.0
    async with running_node(path, **properties) as running:
        await running.create_topic("t")
        clock.rate = 0.0
        yield running
        clock.rate = 1.0


def alteration(entity: dict[str, str | None], **quotas: float | None) -> AlteredEntryData:
    return AlteredEntryData(
        entity=[EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


async def set_quota(running: Node, entity: dict[str, str | None], **quotas: float | None) -> None:
    admin = await running.connect()
    answer = await admin.ask(AlterClientQuotasRequest(entries=[alteration(entity, **quotas)]), client_id="admin")
    assert [each.error_code for each in answer.entries] == [0], answer
    await admin.stream.aclose()


async def answered_after(client: Client, clock: MockClock, milliseconds: int) -> Any:
    """The next answer, which comes after this time and not a millisecond before."""
    received: list[Any] = []

    async def receive() -> None:
        received.append((await client.receive())[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await settled()
        assert not received
        clock.jump((milliseconds - 1) / 1000)
        await settled()
        assert not received
        clock.jump(0.002)
    return received[0]


async def settled() -> None:
    """Sockets have passed on what was written to them."""
    for _ in range(20):
        await trio.testing.wait_all_tasks_blocked(0.0005)


LARGE = batch(bytes(20_000))


async def test_a_producer_is_throttled_and_its_connection_muted(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        limited, other = await running.connect(), await running.connect()
        for client in (limited, other):  # shortcuts are known
            for _ in range(3):
                await client.ask(produce_request("t", batch(b"x"), acks=1), 9, client_id="p")
        await set_quota(running, {"client_id": "p"}, producer_byte_rate=1000)
        answer = await limited.ask(produce_request("t", LARGE), 9, client_id="p")
        assert answer.responses[0].partition_responses[0].error_code == 0
        throttle_ms = answer.throttle_time_ms
        # 20,000 bytes and a little, in a window that counts as 10 s: twice the rate
        assert 10_000 < throttle_ms < 10_500
        limited.send_now(MetadataRequest(topics=[]), client_id="p")
        running.arrived([limited])
        free = await other.ask(produce_request("t", LARGE), 9, client_id="q")
        assert free.throttle_time_ms == 0
        assert (await answered_after(limited, clock, throttle_ms)).throttle_time_ms == 0
        await set_quota(running, {"client_id": "p"}, producer_byte_rate=None)
        for _ in range(2):
            again = await limited.ask(produce_request("t", LARGE), 9, client_id="p")
            assert again.throttle_time_ms == 0


async def test_a_producer_without_answers_is_muted_too(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        await set_quota(running, {"user": "ANONYMOUS"}, producer_byte_rate=1000)
        client = await running.connect()
        client.send_now(produce_request("t", LARGE, acks=0), 9)
        client.send_now(MetadataRequest(topics=[]))
        running.arrived([client])
        received = await answered_between(client, clock, 10_000, 10_500)
        assert received.throttle_time_ms == 0


async def answered_between(client: Client, clock: MockClock, lowest_ms: int, highest_ms: int) -> Any:
    """The next answer, which comes after the first time and before the second."""
    received: list[Any] = []

    async def receive() -> None:
        received.append((await client.receive())[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await settled()
        clock.jump(lowest_ms / 1000)
        await settled()
        assert not received
        clock.jump((highest_ms - lowest_ms) / 1000)
    return received[0]


@pytest.mark.parametrize("with_session", [False, True])
async def test_a_consumer_that_is_throttled_gets_no_records_and_the_same_ones_afterwards(
    clock: MockClock, tmp_path: Path, with_session: bool
) -> None:
    async with node(tmp_path, clock) as running:
        client = await running.connect()
        for _ in range(6):
            await client.ask(produce_request("t", LARGE), 9)
        await set_quota(running, {"user": None}, consumer_byte_rate=5000)
        # 50,000 bytes in 10 s are not too many, so that an answer has two of the batches.
        session: dict[str, Any] = {"session_id": 0, "session_epoch": 0 if with_session else -1}
        first = await client.ask(fetch_request("t", **session), 12)
        assert (first.throttle_time_ms, first.error_code) == (0, 0)
        assert [offset for offset, _ in values(first.responses[0].partitions[0].records)] == [0, 1]
        assert bool(first.session_id) == with_session
        if with_session:
            session = {"session_id": first.session_id, "session_epoch": 1}
        throttled = await client.ask(fetch_request("t", [(0, 2)], **session), 12)
        assert throttled.throttle_time_ms > 0
        assert (throttled.error_code, throttled.responses) == (0, [])
        assert throttled.session_id == first.session_id
        if with_session:
            session["session_epoch"] = 2
        client.send_now(fetch_request("t", [(0, 2)], **session), 12)
        running.arrived([client])
        await settled()
        clock.jump(throttled.throttle_time_ms / 1000 + 20)  # and until the first answer does not count any more
        answer = (await client.receive())[1]
        assert answer.throttle_time_ms == 0
        assert [offset for offset, _ in values(answer.responses[0].partitions[0].records)] == [2, 3]


async def test_a_follower_is_exempt(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        client = await running.connect()
        for _ in range(3):
            await client.ask(produce_request("t", LARGE), 9)
        await set_quota(running, {"user": None}, consumer_byte_rate=10, request_percentage=0.0001)
        answer = await client.ask(fetch_request("t", replica_id=7), 12)
        assert answer.throttle_time_ms == 0


async def test_the_work_for_a_client_is_limited(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        await set_quota(running, {"user": None, "client_id": "busy"}, request_percentage=0.000001)
        client, other = await running.connect(), await running.connect()
        requests = [
            (MetadataRequest(topics=[]), 9),
            (produce_request("t", batch(b"x")), 9),
            (fetch_request("t"), 12),
            (
                ListOffsetsRequest(
                    replica_id=-1,
                    topics=[
                        ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                    ],
                ),
                5,
            ),
        ]
        for request, version in requests:
            client.send_now(request, version, client_id="busy")
            running.arrived([client])
            await settled()
            clock.jump(1.001)
            answer = (await client.receive())[1]
            assert answer.throttle_time_ms == 1000, answer  # one window at most
            free = await other.ask(request, version, client_id="lazy")
            assert free.throttle_time_ms == 0


def created(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=5000
    )


async def test_changes_of_topics_are_limited(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        await set_quota(running, {"user": "ANONYMOUS"}, controller_mutation_rate=1)
        client = await running.connect()

        async def ask(request: Any, version: int) -> tuple[int, int]:
            """Error and throttle time; the time passes then."""
            answer = await client.ask(request, version)
            (entry,) = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
            await settled()
            clock.jump(answer.throttle_time_ms / 1000)
            return entry.error_code, answer.throttle_time_ms

        exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        # 11 windows are saved up; the last change may be as large as it likes.
        assert await ask(created("a", 20), 7) == (0, 0)
        assert await ask(created("b", 1), 7) == (exceeded, 9000)
        assert await ask(created("b", 5), 7) == (0, 0)
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="b", count=6, assignments=None)], timeout_ms=5000
        )
        assert await ask(more, 3) == (exceeded, 5000)
        assert await ask(more, 2) == (0, 1000)  # older clients are throttled afterwards
        assert await ask(created("c", 3), 5) == (0, 3000)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=5000)
        assert await ask(gone, 6) == (0, 0)
        assert await ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="c")], timeout_ms=5000), 6) == (
            exceeded,
            6000,
        )


# --- the APIs -------------------------------------------------------------------------------------------------------


WRONG: list[tuple[AlteredEntryData, str]] = [
    (alteration({}), "Invalid empty client quota entity"),
    (alteration({"topic": "x"}), "Unhandled client quota entity type: topic"),
    (alteration({"user": ""}), "Empty user not supported"),
    (
        alteration({"ip": "10.0.0.1", "user": "a"}),
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    (alteration({"ip": "no host"}), "no host is not a valid IP or resolvable host."),
    (alteration({"user": "a"}, connection_creation_rate=1), "Invalid configuration key connection_creation_rate"),
    (alteration({"ip": None}, producer_byte_rate=1), "Invalid configuration key producer_byte_rate"),
    (alteration({"user": "a"}, producer_byte_rate=-1), "Quota producer_byte_rate must be greater than 0"),
    (alteration({"user": "a"}, producer_byte_rate=1.5), "producer_byte_rate cannot be a fractional value."),
    (
        alteration({"user": "a"}, consumer_byte_rate=1e30),
        "Proposed value for consumer_byte_rate is too large for a LONG.",
    ),
    (
        alteration({"ip": None}, connection_creation_rate=2.0**31),
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
]


async def test_what_cannot_be_a_quota_is_refused(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        client = await running.connect()
        for entry, message in WRONG:
            for version in (0, 1):
                answer = await client.ask(AlterClientQuotasRequest(entries=[entry]), version)
                (result,) = answer.entries
                assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
        checked = AlterClientQuotasRequest(
            entries=[alteration({"user": "a"}, producer_byte_rate=1)], validate_only=True
        )
        assert [each.error_code for each in (await client.ask(checked)).entries] == [0]
        every = await client.ask(DescribeClientQuotasRequest(components=[]))
        assert every.entries == []


EXACT, DEFAULT, SPECIFIED = 0, 1, 2

FILTERS: list[tuple[list[tuple[str, int, str | None]], bool, list[int]]] = [
    ([], False, [0, 1, 2, 3, 4, 5]),
    ([], True, []),
    ([("user", SPECIFIED, None)], False, [1, 2, 3, 4]),
    ([("user", SPECIFIED, None)], True, [3, 4]),
    ([("user", EXACT, "a")], False, [1, 4]),
    ([("user", EXACT, "a"), ("client-id", DEFAULT, None)], True, []),
    ([("user", DEFAULT, None)], False, [2, 3]),
    ([("user", DEFAULT, None), ("client-id", EXACT, "c")], True, [2]),
    ([("client-id", SPECIFIED, None)], False, [0, 1, 2]),
    ([("ip", EXACT, "10.0.0.1")], True, [5]),
    ([("ip", DEFAULT, None)], True, []),
]


async def test_quotas_are_found_by_filters(clock: MockClock, tmp_path: Path) -> None:
    entities: list[dict[str, str | None]] = [
        {"client_id": None},
        {"client_id": "c", "user": "a"},
        {"client_id": "c", "user": None},
        {"user": None},
        {"user": "a"},
        {"ip": "10.0.0.1"},
    ]
    async with node(tmp_path, clock) as running:
        for number, entity in enumerate(entities):
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            await set_quota(running, entity, **{key: 1000.0 + number})
        client = await running.connect()
        for components, strict, expected in FILTERS:
            request = DescribeClientQuotasRequest(
                components=[
                    ComponentData(entity_type=kind, match_type=match_type, match=match)
                    for kind, match_type, match in components
                ],
                strict=strict,
            )
            for version in (0, 1):
                answer = await client.ask(request, version)
                assert sorted(int(entry.values[0].value) - 1000 for entry in answer.entries) == expected


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 0, "a")], 42, "Invalid empty entity type."),
        ([("user", 0, "a"), ("user", 2, None)], 42, "Entity type user cannot appear more than once in the filter."),
        ([("topic", 0, "a")], 35, "Unsupported entity type topic"),
        ([("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], 42, "Unknown match type 3"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(
    clock: MockClock, tmp_path: Path, components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    async with node(tmp_path, clock) as running:
        client = await running.connect()
        answer = await client.ask(
            DescribeClientQuotasRequest(
                components=[
                    ComponentData(entity_type=kind, match_type=match_type, match=match)
                    for kind, match_type, match in components
                ]
            )
        )
        assert (answer.error_code, answer.error_message, answer.entries) == (code, message, None)
