"""Members of a share group (KIP-932) in a simulated cluster: they hold records, and accept, release, reject, renew."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from kbroker.cores.share_partitions.acknowledging import AcknowledgeType
from kbroker.errors import ErrorCode
from kbroker.sim.clients import RETRIABLE, ClusterClient
from kbroker.sim.share_history import Hold, LateAcknowledgement, ShareHistory
from kbroker.sim.transaction_clients import GROUP, TRY_AGAIN, Coordinated
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition, Uuid, random_uuid, uuid_to_str
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages import share_fetch as message
from kbroker.wire.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from kbroker.wire.messages.share_groups import ShareGroupHeartbeatRequest
from kbroker.wire.record_batch import iter_records

_HEARTBEAT_SECONDS = 2.0

_REJOIN = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})

_NO_SESSION = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})

_NOT_KEPT = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors that say that a word is not kept, and the record is still the member's."""

Source = Callable[[int, TopicPartition, str], tuple[object | None, bool]]
"""Of a node, the share partition of a group that it has in memory, if any, and whether that is the real leader's."""

Start = Callable[[object], int | None]
"""The start offset of such a share partition; None while it is not loaded."""

Record = tuple[TopicPartition, int]


@dataclass(slots=True)
class _Session:
    """A share session with one broker, and what the member holds of it."""

    epoch: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)
    holds: dict[Record, Hold] = field(default_factory=dict)


class SimShareMember:
    """A simulated share consumer. It ends its deliveries in any way, late ones too, until the group is drained."""

    def __init__(
        self, client: ClusterClient, fetcher: ClusterClient, source: Source, start: Start, history: ShareHistory
    ) -> None:
        """``fetcher`` has connections that nothing but share sessions uses: a session ends with its connection."""
        self.gone = False
        self.id = uuid_to_str(random_uuid(client.rng))
        self.assigned: list[TopicPartition] = []
        self._client = client
        self._fetcher = fetcher
        self._source = source
        self._start = start
        self._history = history
        self._coordinator = Coordinated(client, history.group, GROUP)
        self._epoch = 0
        self._was_answered = False
        self._heartbeat_at = 0.0
        self._topic_id = Uuid(bytes(16))
        self._sessions: dict[int, _Session] = {}
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Until the history is ``stopped``, or this member has left."""
        rng = self._client.rng
        with self._scope:
            while not self._history.stopped and not self.gone:
                if trio.current_time() >= self._heartbeat_at:
                    await self._heartbeat()
                by_leader = await self._by_leader()
                for node_id in sorted({*by_leader, *self._sessions}):
                    await self._serve(node_id, by_leader.get(node_id, set()))
                await trio.sleep(rng.uniform(0, 1.2))

    def crash(self) -> None:
        """It is gone and tells nobody; what it has sent may still arrive."""
        self.gone = True
        self._scope.cancel()
        for node_id in list(self._sessions):
            self._lose(node_id)
        self._fetcher.close()

    async def leave(self) -> None:
        """It goes, and says so as far as anybody hears it."""
        self.crash()
        await self._coordinator.ask(
            ShareGroupHeartbeatRequest(group_id=self._history.group, member_id=self.id, member_epoch=-1)
        )

    async def _heartbeat(self) -> None:
        history = self._history
        request = ShareGroupHeartbeatRequest(
            group_id=history.group,
            member_id=self.id,
            member_epoch=self._epoch,
            subscribed_topic_names=None if self._was_answered else [history.topic],
        )
        response = await self._coordinator.ask(request)
        self._was_answered = response is not None and response.error_code == ErrorCode.NONE
        if response is None:
            return
        code = ErrorCode(response.error_code)
        if code in _REJOIN:
            self._epoch = 0
            self.assigned = []
        elif code in TRY_AGAIN:
            await self._coordinator.lost()
        elif code != ErrorCode.NONE:
            raise Violation(f"{history.group}: ShareGroupHeartbeat is answered {code.name}: {response.error_message}")
        else:
            self._epoch = response.member_epoch
            self._heartbeat_at = trio.current_time() + _HEARTBEAT_SECONDS
            if response.assignment is not None:
                self._take_assignment(response.assignment)

    def _take_assignment(self, assignment: Any) -> None:
        self.assigned = []
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
            self.assigned += [TopicPartition(self._history.topic, index) for index in topic.partitions]

    async def _by_leader(self) -> dict[int, set[TopicPartition]]:
        found: dict[int, set[TopicPartition]] = {}
        for tp in self.assigned:
            leader = await self._client.leader(tp)
            if leader is not None:
                found.setdefault(leader[0], set()).add(tp)
        return found

    async def _serve(self, node_id: int, wanted: set[TopicPartition]) -> None:
        """Go through a round with a broker: give it the acknowledgements that are due, and ask for records."""
        session = self._sessions.setdefault(node_id, _Session())
        words = self._decide(session)
        if not wanted:  # it leads nothing that matters any more
            if session.epoch:
                session.epoch = -1
                await self._acknowledge(node_id, session, words)
            self._lose(node_id)
            return
        apart = AcknowledgeType.RENEW in words.values() or self._client.rng.random() < 0.5
        if words and apart:
            await self._acknowledge(node_id, session, words)
            words = {}
        if self._sessions.get(node_id) is session:
            await self._fetch(node_id, session, wanted, words)

    def _decide(self, session: _Session) -> dict[Record, AcknowledgeType]:
        """The words that are due. Some come too late, and some never."""
        rng, now = self._client.rng, trio.current_time()
        kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW, None)
        words: dict[Record, AcknowledgeType] = {}
        for record, hold in list(session.holds.items()):
            kind = rng.choices(kinds, (60, 8, 4, 8, 20))[0]
            if now > hold.until and rng.random() < 0.7:
                hold.is_over = True
                del session.holds[record]
            elif self._history.draining:
                words[record] = AcknowledgeType.ACCEPT
            elif kind is not None:
                words[record] = kind
        return dict(sorted(words.items()))

    def _lose(self, node_id: int) -> None:
        """The session is over, or may be: nothing that it gave is surely held."""
        session = self._sessions.pop(node_id, None)
        if session is not None:
            for hold in session.holds.values():
                hold.is_over = True
            for tp in session.partitions:
                self._client.forget(tp)

    # Requests

    async def _acknowledge(self, node_id: int, session: _Session, words: Mapping[Record, AcknowledgeType]) -> None:
        partitions = [
            message.AcknowledgePartition(
                partition_index=tp.partition,
                acknowledgement_batches=[
                    message.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in _batches(tp, words, session.holds)
                ],
            )
            for tp in sorted({tp for tp, _ in words})
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._history.group,
            member_id=self.id,
            share_session_epoch=session.epoch,
            is_renew_ack=AcknowledgeType.RENEW in words.values(),
            topics=[message.AcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
        )
        await self._exchange(node_id, session, words, request)

    async def _fetch(
        self, node_id: int, session: _Session, wanted: set[TopicPartition], words: Mapping[Record, AcknowledgeType]
    ) -> None:
        rng = self._client.rng
        if not session.epoch:
            words = {}
        new = wanted - session.partitions
        partitions = [
            message.FetchPartition(
                partition_index=tp.partition,
                acknowledgement_batches=[
                    message.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in _batches(tp, words, session.holds)
                ],
            )
            for tp in sorted(new | {tp for tp, _ in words})
        ]
        forgotten = sorted(tp.partition for tp in session.partitions - wanted)
        most = rng.choice((1, 3, 20, 500))
        request = ShareFetchRequest(
            group_id=self._history.group,
            member_id=self.id,
            share_session_epoch=session.epoch,
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=most,
            batch_size=most,
            share_acquire_mode=rng.choice((0, 1)),
            topics=[message.FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[message.ForgottenTopic(topic_id=self._topic_id, partitions=forgotten)]
            if forgotten
            else [],
        )
        session.partitions = set(wanted)
        await self._exchange(node_id, session, words, request)

    async def _exchange(
        self, node_id: int, session: _Session, words: Mapping[Record, AcknowledgeType], request: Any
    ) -> None:
        """Send a request with words, and take what comes of it."""
        history, sent = self._history, trio.current_time()
        holds = {record: session.holds[record] for record in words}
        concerned = {*session.partitions, *(tp for tp, _ in words)}
        before = {tp: self._source(node_id, tp, history.group)[0] for tp in concerned}
        had = {record: hold for record, hold in holds.items() if not hold.is_over}
        for (tp, offset), kind in words.items():
            history.telling(tp, offset, holds[tp, offset], kind)
        is_fetch = isinstance(request, ShareFetchRequest)
        history.open_fetches += is_fetch
        response = await self._fetcher.ask(node_id, request, timeout=8.0)
        history.open_fetches -= is_fetch and response is not None
        if response is None:
            self._lose(node_id)
            return
        code = ErrorCode(response.error_code)
        if code in _NO_SESSION:
            raise Violation(f"{history.group}: node {node_id} has lost the session of {self.id}: {code.name}")
        if code != ErrorCode.NONE:
            raise Violation(f"{history.group}: {type(request).__name__} is answered {code.name}")
        session.epoch += 1
        source: dict[TopicPartition, object | None] = {}
        same: dict[TopicPartition, object | None] = {}
        for tp in concerned:
            after, is_real = self._source(node_id, tp, history.group)
            source[tp] = after if is_real and before[tp] in (None, after) else None
            same[tp] = after if before[tp] is after else None
        told = {
            TopicPartition(history.topic, part.partition_index): part
            for topic in response.responses
            for part in topic.partitions
        }
        for tp in sorted({tp for tp, _ in words}):
            self._take_outcome(session, tp, told.get(tp), words, had, source[tp], same[tp], sent)
        if is_fetch:
            for tp, part in told.items():
                self._take_records(session, tp, part, source.get(tp), sent)

    def _take_outcome(
        self,
        session: _Session,
        tp: TopicPartition,
        part: Any,
        words: Mapping[Record, AcknowledgeType],
        had: Collection[Record],
        source: object | None,
        same: object | None,
        sent: float,
    ) -> None:
        """The broker's answer to the words about one partition.

        ``same`` is its share partition in memory, if that was there when the words were sent; ``source`` is it, too, if
        it is that of the real leader.
        """
        history = self._history
        if part is None:
            raise Violation(f"{history.group}: {self.id} is not answered about {tp}")
        is_fetch = isinstance(part, message.ShareFetchPartitionData)
        code = ErrorCode(part.acknowledge_error_code if is_fetch else part.error_code)
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self._client.forget(tp)
        elif code not in _NOT_KEPT | {
            ErrorCode.NONE,
            ErrorCode.INVALID_RECORD_STATE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }:
            raise Violation(f"{history.group}: words about {tp} are answered {code.name}")
        now = trio.current_time()
        mine = [record for record in words if record[0] == tp]
        all_held = all(
            record in had and session.holds[record].source is source and now < session.holds[record].until
            for record in mine
        )
        for record in mine:
            hold, kind = session.holds[record], words[record]
            if code is ErrorCode.NONE:
                is_sure = record in had and same is not None and hold.source is same and now < hold.until
                start = None if same is None else self._start(same)
                late = None if is_sure or start is None else LateAcknowledgement(same, now, record[1] < start)
                history.told(*record, hold, kind, sent, is_sure=is_sure, late=late)
                if kind is not AcknowledgeType.RENEW:
                    del session.holds[record]
                continue
            had_it = code is ErrorCode.INVALID_RECORD_STATE and source is not None and all_held
            history.refused(*record, hold, code.name, had_it=had_it)
            if code in _NOT_KEPT and source is not None and hold.source is source:
                hold.is_over = not (record in had and now < hold.until)  # it is taken back: the lock goes on
            else:
                hold.is_over = True
                del session.holds[record]

    def _take_records(
        self, session: _Session, tp: TopicPartition, part: Any, source: object | None, sent: float
    ) -> None:
        """The answer of a ShareFetch for one partition."""
        history = self._history
        code = ErrorCode(part.error_code)
        if code is not ErrorCode.NONE:
            if code not in RETRIABLE:
                raise Violation(f"{history.group}: ShareFetch of {tp} is answered {code.name}")
            self._client.forget(tp)
            return
        values: dict[int, bytes] = {}
        for start, _ in walk_headers(bytes(part.records or b"")):
            for record in iter_records(bytes(part.records), start):
                values[record.offset] = record.value or b""
        now = trio.current_time()
        for acquired in part.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                if offset not in values:
                    raise Violation(f"{history.group}: {tp} {offset} is acquired, and is not among the records")
                hold = Hold(self.id, acquired.delivery_count, source, sent + history.lock_seconds)
                history.given(tp, offset, values[offset], hold, now)
                session.holds[tp, offset] = hold


def _batches(
    tp: TopicPartition, words: Mapping[Record, AcknowledgeType], holds: Mapping[Record, Hold]
) -> list[tuple[int, int, list[int]]]:
    """The words about a partition as batches: first and last offset, and types, one if all are alike.

    Neighbours are in one batch if their locks end together: one that is done with in part is taken all the same.
    """
    batches: list[tuple[int, float, list[int]]] = []
    for (about, offset), kind in words.items():
        if about != tp:
            continue
        until = holds[tp, offset].until
        if batches and batches[-1][0] + len(batches[-1][2]) == offset and batches[-1][1] == until:
            batches[-1][2].append(kind.value)
        else:
            batches.append((offset, until, [kind.value]))
    return [
        (first, first + len(types) - 1, types[:1] if len(set(types)) == 1 else types) for first, _, types in batches
    ]
