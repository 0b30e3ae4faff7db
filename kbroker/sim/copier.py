"""Consume, transform, produce in a simulated cluster: each record of a partition once, in order, in another one."""

from __future__ import annotations

from typing import Any

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import Consumer
from kbroker.sim.history import History, make_value, parse_value
from kbroker.sim.transaction_clients import GROUP, TRY_AGAIN, Coordinated, Ending, TransactionalClient, fetched_offset
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.record_batch import iter_records

MOST = 5
"""Records that are copied in one transaction."""


class _Source(Consumer):
    """Reads committed records and keeps them for the copier."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, read_committed=True)
        self.taken: list[int] = []
        """Offsets of what was read since the last time."""

    def _take_batch(self, data: bytes, start: int, header: BatchHeader, bound: int) -> None:
        for record in iter_records(data, start):
            if record.offset >= bound:
                raise Violation(f"{self.tp}: {record.offset} was shown, though only what is below {bound} may be")
            if record.offset >= self.position:
                self.taken.append(record.offset)
                self.position = record.offset + 1


class Copier:
    """Copies a partition in transactions that commit its group's offsets, too; what it writes names what it copied."""

    def __init__(
        self, number: int, requests: TransactionalClient, source: TopicPartition, target: TopicPartition
    ) -> None:
        self.number = number
        self.stopped = False
        self.commits = 0
        self.source = source
        self.target = target
        self.lives = 0
        self._requests = requests
        self._history: History = requests.history
        self._group = Coordinated(requests.client, f"copy-{requests.name}", GROUP)
        self._reader = _Source(requests.client, requests.history, source)
        self._position = -1
        """Up to where it has copied, as it believes; -1 when it must ask its group."""
        self._committed = 0
        """Up to where it was told that it has copied."""
        self._scope = trio.CancelScope()

    def crash(self) -> None:
        """Forget everything and begin anew, whatever it was at."""
        self._scope.cancel()

    async def run(self) -> None:
        """Copy in one transaction after the other until ``stopped``."""
        while not self.stopped:
            self.lives += 1
            self._requests.drop()
            self._position = -1
            self._scope = trio.CancelScope()
            with self._scope:
                while not self.stopped:
                    await self._copy_some()

    async def _copy_some(self) -> None:
        requests, reader, rng = self._requests, self._reader, self._requests.client.rng
        if not requests.is_ready and not await requests.initialize():
            return
        if self._position < 0 and not await self._ask_group():
            return
        reader.position = self._position
        reader.taken.clear()
        if not await reader.poll():
            return
        offsets = reader.taken[:MOST]
        if not offsets:
            self._position = reader.position  # markers and aborted records
            return
        after = offsets[-1] + 1
        values = [make_value(self.number, offset) for offset in offsets]
        if not await requests.produce(self.target, values) or not await requests.commit_offsets(
            self._group, {self.source: after}
        ):
            requests.drop()
            self._position = -1
            return
        commit = rng.random() < 0.85
        ending = await requests.end(commit=commit)
        if ending is not Ending.DONE:
            self._position = -1
        elif commit:
            self.commits += 1
            self._position = self._committed = after
            self._history.acknowledged(self.target, values, -1, -1, retried=True)

    async def _ask_group(self) -> bool:
        topic = OffsetFetchRequestTopics(name=self.source.topic, partition_indexes=[self.source.partition])
        groups = [OffsetFetchRequestGroup(group_id=self._group.key, topics=[topic])]
        response = await self._group.ask(OffsetFetchRequest(groups=groups, require_stable=True), 9)
        if response is None:
            return False
        code, answer = fetched_offset(response)
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await trio.sleep(0.1)
            return False
        if code != ErrorCode.NONE or answer is None:
            if code not in TRY_AGAIN:
                raise Violation(f"{self._group.key}: OffsetFetch is answered {code.name}")
            await self._group.lost()
            return False
        if answer.committed_offset < self._committed and self._committed:
            raise Violation(
                f"{self._group.key}: committed is {answer.committed_offset}, after {self._committed} was acknowledged"
            )
        self._position = max(0, answer.committed_offset)
        return True

    def check(self) -> None:
        """Compare the target with the source: nothing else is there, and all that was reported as copied."""
        there = {parse_value(value)[1] for value in self._history.of(self.target).offsets}
        read = set(self._history.of(self.source).values)
        if not there <= read:
            raise Violation(f"{self.target}: {sorted(there - read)} of {self.source} were copied, and nobody saw them")
        missing = {offset for offset in read if offset < self._committed} - there
        if missing:
            raise Violation(f"{self.target}: {sorted(missing)} of {self.source} are missing, below {self._committed}")
