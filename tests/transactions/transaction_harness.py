"""A transaction coordinator's shard with a log of its own, and partitions that take its markers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.transactions.coordinator import MarkersToWrite, ProducerIdAndEpoch, TransactionCoordinator
from kbroker.cores.transactions.producer_ids import ProducerIdPool
from kbroker.cores.transactions.settings import TransactionSettings
from kbroker.cores.transactions.transaction import TV_2, Transaction
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import TopicPartition

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
TIMEOUT_MS = 60_000


class Shard:
    """Drives a core as ``node.coordinator_driver`` does. ``held`` keeps records uncommitted until `commit`."""

    def __init__(self, version: int = TV_2, **settings: Any) -> None:
        self.version = version
        self.settings = TransactionSettings(**settings)
        self.ids = ProducerIdPool()
        self.ids.add_block(1000, 1_000_000)
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.uncommitted: list[tuple[CoordinatorResult[Any], list[CoordinatorRecord]]] = []
        self.held = False
        self.fails_with: ErrorCode | None = None
        self.markers: list[MarkersToWrite] = []
        """Every marker that was asked for."""
        self.marker_errors: dict[TopicPartition, ErrorCode] = {}
        self.holds_markers = False
        self.lost: set[TopicPartition] = set()
        """Partitions that have lost the last marker."""
        self.waiting_markers: list[MarkersToWrite] = []
        self.core = self._new_core()
        self.core.on_loaded(self.now_ms)

    def _new_core(self) -> TransactionCoordinator:
        def lacks_marker(key: TopicPartition, decision: object) -> Generator[None, None, bool]:
            yield
            return key in self.lost

        return TransactionCoordinator(lambda: self.settings, lambda: self.version, self.ids.take, lacks_marker)

    def restart(self) -> TransactionCoordinator:
        """Load a new core from the log; what was not committed is lost. Returns the core before."""
        before = self.core
        self.uncommitted = []
        self.waiting_markers = []
        self.core = self.loaded()
        self.core.on_loaded(self.now_ms)
        return before

    def loaded(self) -> TransactionCoordinator:
        """A core that has replayed the log."""
        core = self._new_core()
        for offset, record in enumerate(self.log):
            core.replay(record, self.now_ms, offset=offset)
        for _ in core.find_lost_markers():
            pass
        return core

    def run(self, result: CoordinatorResult[Any]) -> Any:
        """Store a result's records, unless they are held; the response, or the error that stands in its place."""
        if self.held and result.records:
            self.uncommitted.append((result, result.records))
        else:
            self._store(result)
        if result.error is not None:
            raise result.error
        return result.response

    def _store(self, result: CoordinatorResult[Any]) -> None:
        error = self.fails_with if result.records else None
        if error is None:
            for record in result.records:
                self.core.replay(record, self.now_ms, offset=len(self.log))
                self.log.append(record)
        if result.on_stored is not None:
            self._store(result.on_stored(error, self.now_ms))
        for markers in self.core.take_markers():
            self.markers.append(markers)
            if self.holds_markers:
                self.waiting_markers.append(markers)
            else:
                self._write(markers)

    def _write(self, markers: MarkersToWrite) -> None:
        errors = {each: self.marker_errors.get(each, ErrorCode.NONE) for each in markers.partitions}
        self._store(self.core.on_markers_written(markers, errors, self.now_ms))

    def commit(self) -> None:
        """The records that were held are committed."""
        self.held = False
        waiting, self.uncommitted = self.uncommitted, []
        for result, _ in waiting:
            self._store(result)

    def write_markers(self) -> None:
        """The partitions take the markers that were held."""
        self.holds_markers = False
        waiting, self.waiting_markers = self.waiting_markers, []
        for markers in waiting:
            self._write(markers)

    def advance(self, ms: int) -> None:
        """Let time pass, and do what is due."""
        self.now_ms += ms
        while (result := self.core.on_deadline(self.now_ms)) is not None:
            self._store(result)

    def init(
        self, transactional_id: str = "x", expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerIdAndEpoch:
        producer = None if expected is None else ProducerIdAndEpoch(*expected)
        found: ProducerIdAndEpoch = self.run(
            self.core.init_producer_id(transactional_id, timeout_ms, producer, self.now_ms)
        )
        return found

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "x",
        version: int | None = None,
    ) -> None:
        client = self.version if version is None else version
        self.run(
            self.core.add_partitions(
                transactional_id, ProducerIdAndEpoch(*producer), partitions or (P0,), client, self.now_ms
            )
        )

    def end(
        self, producer: tuple[int, int], commit: bool = True, transactional_id: str = "x", version: int | None = None
    ) -> ProducerIdAndEpoch:
        client = self.version if version is None else version
        found: ProducerIdAndEpoch = self.run(
            self.core.end_transaction(transactional_id, ProducerIdAndEpoch(*producer), commit, client, self.now_ms)
        )
        return found

    def verify(self, producer: tuple[int, int], *partitions: TopicPartition) -> list[ErrorCode]:
        return list(self.core.verify_partitions("x", ProducerIdAndEpoch(*producer), partitions).values())

    def state(self, transactional_id: str = "x") -> Transaction:
        return self.core.transactions[transactional_id]


def code(call: Callable[[], object]) -> ErrorCode:
    """The error that a call raises, NONE without one."""
    try:
        call()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
