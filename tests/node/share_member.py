"""A member of a share group by hand: its ShareFetch and ShareAcknowledge, without a part in the group."""

from __future__ import annotations

from kbroker.types import Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages import configs as alter
from kbroker.wire.messages import share_fetch as messages
from kbroker.wire.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from kbroker.wire.record_batch import Record, iter_records
from tests.node.node_harness import Client, fetch_request
from tests.node.share_state_harness import GROUP, errors, find, initialize, until_loaded

ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP_TYPE = 32


async def begin(client: Client, topic_id: Uuid, partition: int = 0, start_offset: int = 0) -> None:
    """Have the share partition's state made."""
    await find(client, topic_id, partition)
    await until_loaded(client, topic_id, partition)
    answer = await client.ask(initialize(topic_id, (partition, 1, start_offset)))
    assert not errors(answer)[0].error_code, answer


def share_fetch(
    topic_id: Uuid,
    epoch: int = 0,
    *,
    max_wait_ms: int = 0,
    max_records: int = 100,
    accepted: int | None = None,
    partition: int = 0,
    member_id: str = "member",
) -> ShareFetchRequest:
    """A member asks for records of one partition, which its session has from epoch 0 on.

    ``accepted`` is an offset that has been worked on.
    """
    asked = FetchPartition(partition_index=partition)
    if accepted is not None:
        done = AcknowledgementBatch(first_offset=accepted, last_offset=accepted, acknowledge_types=[ACCEPT])
        asked.acknowledgement_batches = [done]
    topic = FetchTopic(topic_id=Uuid(topic_id), partitions=[asked])
    return ShareFetchRequest(
        group_id=GROUP,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_records=max_records,
        batch_size=max_records,
        topics=[topic] if epoch == 0 or accepted is not None else [],
    )


class Member:
    """A share session on the given connection, which leads to the partition's leader."""

    def __init__(self, client: Client, topic_id: Uuid, partition: int = 0, member_id: str = "member") -> None:
        self._client = client
        self._topic_id = Uuid(topic_id)
        self._partition = partition
        self._id = member_id
        self._epoch = 0

    async def fetch(self, max_records: int = 500) -> list[tuple[int, int, int]]:
        """Offsets that it holds now, the first and the last, and how often they were handed out; it waits for some."""
        while True:
            asked = share_fetch(
                self._topic_id,
                self._epoch,
                max_wait_ms=200,
                max_records=max_records,
                partition=self._partition,
                member_id=self._id,
            )
            asked.share_acquire_mode = 1
            answer = await self._client.ask(asked)
            assert not answer.error_code, answer
            self._epoch += 1
            for topic in answer.responses:
                for part in topic.partitions:
                    if part.acquired_records:
                        return [
                            (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
                        ]

    async def acknowledge(self, first: int, last: int, *types: int) -> None:
        """Say what became of records."""
        batch = messages.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        partition = messages.AcknowledgePartition(partition_index=self._partition, acknowledgement_batches=[batch])
        answer = await self._client.ask(
            messages.ShareAcknowledgeRequest(
                group_id=GROUP,
                member_id=self._id,
                share_session_epoch=self._epoch,
                topics=[messages.AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
            )
        )
        self._epoch += 1
        assert not answer.error_code and not answer.responses[0].partitions[0].error_code, answer


async def configure(client: Client, kind: int, name: str, **configs: str) -> None:
    """Set configs: ``retention_ms="1"`` stands for ``retention.ms=1``."""
    resource = alter.IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter.IncrementalAlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    answer = await client.ask(alter.IncrementalAlterConfigsRequest(resources=[resource]))
    assert not answer.responses[0].error_code, answer


async def records_of(client: Client, topic: str, topic_id: Uuid, partition: int = 0) -> list[Record]:
    """All records of a partition."""
    found: list[Record] = []
    while True:
        asked = fetch_request(topic, [(partition, found[-1].offset + 1 if found else 0)], topic_id=topic_id)
        answer = (await client.ask(asked)).responses[0].partitions[0]
        assert not answer.error_code, answer
        data = bytes(answer.records or b"")
        if not data:
            return found
        found += [record for position, _ in walk_headers(data) for record in iter_records(data, position)]
