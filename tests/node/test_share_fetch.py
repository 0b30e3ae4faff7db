"""ShareFetch on one node: topics that go and come back, states that cannot be read, and what others do meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.handlers.test_transactions import open_producer
from tests.node.node_harness import Client, Node, produce_request, running_node
from tests.node.node_harness import batch as records
from tests.node.share_member import GROUP_TYPE, Member, begin, configure, share_fetch
from tests.node.share_state_harness import GROUP, errors, find, initialize, until_loaded
from tests.patience import SHORT, until

FEW = {"share_coordinator_state_topic_num_partitions": "1"}


def part(response: Any) -> Any:
    """The only partition of an answer."""
    assert response.error_code == 0
    ((found,),) = ([*topic.partitions] for topic in response.responses)
    return found


async def new_topic(node: Node, client: Client) -> Uuid:
    """A topic ``t`` whose share partition is initialized, to begin at 0."""
    topic_id = await node.create_topic("t")
    await find(client, topic_id)
    await until_loaded(client, topic_id, 0)
    assert [each.error_code for each in errors(await client.ask(initialize(topic_id, (0, 1, 0))))] == [0]
    return topic_id


async def test_a_topic_that_is_deleted_under_a_fetch_that_waits(tmp_path: Path) -> None:
    """KAFKA-20533: the answer was UNKNOWN_SERVER_ERROR. A topic of the same name begins anew, by its own id.

    The session knows the name of the one that is gone, as Apache Kafka 4.4.0's does; another session does not.
    """
    async with running_node(tmp_path, **FEW) as node:
        member, other = await node.connect(), await node.connect()
        topic_id = await new_topic(node, other)
        await other.ask(produce_request("t", records(b"a", b"b")), 9)
        acquired = part(await member.ask(share_fetch(topic_id, max_wait_ms=10_000))).acquired_records
        assert [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired] == [(0, 1, 1)]
        await member.send(share_fetch(topic_id, 1, max_wait_ms=3_600_000))
        await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
        with trio.fail_after(SHORT):
            assert part((await member.receive())[1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert part(await member.ask(share_fetch(topic_id, 2))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        stranger = part(await member.ask(share_fetch(topic_id, member_id="stranger")))
        assert stranger.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        again = await new_topic(node, other)
        await other.ask(produce_request("t", records(b"c")), 9)
        answer = part(await member.ask(share_fetch(again, max_wait_ms=10_000)))
        assert answer.error_code == 0
        acquired = answer.acquired_records
        assert [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired] == [(0, 0, 1)]


async def test_no_record_is_handed_out_for_an_answer_that_nobody_gets(tmp_path: Path) -> None:
    """Members that wait get what comes back when its lock ends; each delivery that is counted was somebody's answer."""
    async with running_node(tmp_path, **FEW) as node:
        other = await node.connect()
        topic_id = await new_topic(node, other)
        await configure(other, GROUP_TYPE, GROUP, share_delivery_count_limit="10")
        await other.ask(produce_request("t", records(b"a", b"b", b"c")), 9)
        services: Any = node.broker.services
        counts: dict[int, list[int]] = {0: [], 1: [], 2: []}

        async def work(member: Member) -> None:
            while True:
                for first, last, count in await member.fetch(2):
                    for offset in range(first, last + 1):
                        counts[offset].append(count)

        async def is_handed_out() -> bool:
            led = services.share_groups().partitions.led()
            return bool(led and led[0].core is not None and led[0].core.next_fetch_offset() == 3)

        async with trio.open_nursery() as nursery:
            for name in ("one", "two", "three"):
                nursery.start_soon(work, Member(await node.connect(), topic_id, member_id=name))
            await until(is_handed_out)
            for _ in range(8):
                services.share_groups().partitions.end_all_locks()
                await until(is_handed_out)

            async def all_came() -> bool:
                return all(len(found) >= 9 for found in counts.values())

            await until(all_came)
            nursery.cancel_scope.cancel()
        assert all(sorted(found) == [*range(1, 10)] for found in counts.values()), counts


async def test_a_connection_of_many_groups_is_remembered_for_those_that_live(tmp_path: Path) -> None:
    """A group whose last session has ended is forgotten once its connection begins a session of another group."""
    async with running_node(tmp_path, **FEW) as node:
        client = await node.connect()
        topic_id = await new_topic(node, client)
        manager: Any = node.broker.share_groups.parts().partitions  # type: ignore[union-attr]
        for number in range(20):
            opening = share_fetch(topic_id)
            opening.group_id = f"group-{number}"
            assert not (await client.ask(opening)).error_code
            ending = share_fetch(topic_id, -1)
            ending.group_id = opening.group_id
            if number != 5:
                assert not (await client.ask(ending)).error_code
        [groups] = manager._groups_of.values()
        assert groups == {"group-5", "group-19"}

        async def only_theirs() -> bool:
            return bool({led.key.group_id for led in manager.led()} <= groups)

        await until(only_theirs)


async def test_a_state_that_cannot_be_read_has_clients_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's Java client throws IllegalStateException where a partition has an error of a coordinator."""
    async with running_node(tmp_path, **FEW) as node:
        client = await node.connect()
        topic_id = await new_topic(node, client)
        services: Any = node.broker.services

        async def fail(group_id: str, leader_epochs: Any) -> Any:
            return dict.fromkeys(leader_epochs, ErrorCode.COORDINATOR_NOT_AVAILABLE)

        with monkeypatch.context() as patch:
            patch.setattr(services.share_groups().persister, "read", fail)
            answer = part(await client.ask(share_fetch(topic_id, max_wait_ms=100)))
            assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        await client.ask(produce_request("t", records(b"a")), 9)
        answer = part(await client.ask(share_fetch(topic_id, 1, max_wait_ms=10_000)))
        assert (answer.error_code, len(answer.acquired_records)) == (0, 1)


async def test_records_that_come_while_no_member_is_there_wait_for_the_next(tmp_path: Path) -> None:
    """A group that reads from the end begins where its first member has asked for records, though there were none."""
    async with running_node(tmp_path, **FEW) as node:
        client, first = await node.connect(), await node.connect()
        topic_id = await node.create_topic("t")
        await begin(client, topic_id, start_offset=-1)
        assert not (await first.ask(share_fetch(topic_id, max_wait_ms=500))).error_code
        await first.stream.aclose()
        services: Any = node.broker.services

        async def is_forgotten() -> bool:
            return not services.share_groups().partitions.led()

        await until(is_forgotten)
        await client.ask(produce_request("t", records(b"a")), 9)
        with trio.fail_after(SHORT):
            assert await Member(client, topic_id).fetch() == [(0, 0, 1)]


async def test_others_have_their_turn_while_an_aborted_transaction_is_passed_over(tmp_path: Path) -> None:
    """It may be millions of records long, and the node served nobody else meanwhile."""
    async with running_node(tmp_path, **FEW) as node:
        client = await node.connect()
        topic_id = await new_topic(node, client)
        await configure(client, GROUP_TYPE, GROUP, share_isolation_level="read_committed")
        producer = await open_producer(node)
        for _ in range(20):
            assert not await producer.send(b"a")
        assert not await producer.end(commit=False)
        services: Any = node.broker.services
        starts: set[int] = set()

        async def look() -> None:
            while True:
                for led in services.share_groups().partitions.led():
                    starts.add(-1 if led.core is None else led.core.start_offset)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            answer = part(await client.ask(share_fetch(topic_id, max_wait_ms=10_000, max_records=1)))
            nursery.cancel_scope.cancel()
        assert [(each.first_offset, each.last_offset) for each in answer.acquired_records] == [(20, 20)]  # the marker
        assert len(starts) > 10
