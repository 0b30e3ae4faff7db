"""A broker's life by the active controller: registration, heartbeats, and a controlled shutdown (KIP-631, KIP-919).

Every broker lives so, also one that is alone: its controller is then in the same process.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, FatalError
from kbroker.log.damage import UNKNOWN_END
from kbroker.log.log_dir import LogDir
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.controller.surviving_logs import Key, LogEnd, is_asked_for
from kbroker.raft_metadata.image import Endpoint, MetadataDelta, MetadataImage, endpoint_entries, feature_entries
from kbroker.raft_metadata.metadata_version import CORDONED_DIRECTORIES
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages import nodes as api
from kbroker.wire.messages.nodes import BrokerHeartbeatRequest, BrokerHeartbeatResponse, LogEndData

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
"""Between two attempts to reach the active controller."""

DENIED_SECONDS = 1.0
"""Between two attempts when the active controller denies this node's principal: only somebody can change that."""

LEAVE_SECONDS = 2.0
"""A node that stops waits no longer for all others to know who leads instead (a process has 5 s in all to stop)."""

NO_CONTROLLER_SECONDS = 1.0
"""A node that stops waits no longer for an answer from any controller: perhaps all nodes stop."""

LOG_ENDS = 10_000
"""The ends of logs in a heartbeat. After a power cut of everything there may be hundreds of thousands of them, of which
a request may have 100,000, and others are not served while they are read."""

_FATAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION})
_FORGOTTEN = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class BrokerLifecycle:
    """Registers the node as controller and as broker, and keeps the broker unfenced while it runs."""

    def __init__(self, config: BrokerConfig, metadata: MetadataPlane, log_manager: LogManager) -> None:
        self._config = config
        self._metadata = metadata
        self._client = metadata.client
        self._log_manager = log_manager
        self.broker_epoch = -1
        """The epoch of the present registration; -1 before the first."""
        self.was_unfenced = False
        """Whether the controller has let this broker serve since the node's start."""
        self._registration: Callable[[], api.BrokerRegistrationRequest] | None = None
        self._runs = False
        self._stops = False
        self._stopping: frozenset[int] = frozenset()
        """Other brokers that are in controlled shutdown."""
        self._leads = (-1, -1)
        """The active controller and its epoch, by the latest image."""
        self._wanted = trio.Event()
        """Set when a heartbeat should not wait for its time."""
        self._rests = False
        """Whether the next heartbeat has no time: this broker was alone at the last."""
        self._beating = trio.Lock()
        self._refused_beat = ErrorCode.NONE
        """The error of the last heartbeat."""
        self._untold: dict[Key, None] = {}
        """Partitions of this broker of which no replica is known to have everything, and whose ends the active
        controller has not been told."""
        self._told: dict[Key, None] = {}
        """Those whose ends it has been told, the least recently told first."""
        self._told_failures: set[Uuid] = set()
        """The log dirs that the controller knows to have failed."""
        self._untold_since: dict[Uuid, float] = {}
        """Those that it does not know of yet, and since when."""

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole cluster: the only voter, and the only broker."""
        return self._metadata.is_alone and len(self._metadata.image.brokers) < 2

    async def _insist(self, make: Callable[[], Any], what: str) -> Any:
        """Ask until the answer has no error; :class:`FatalError` for an error that will not go away."""
        warned = None
        timeout = self._config.initial_broker_registration_timeout_ms / 1000
        deadline = trio.current_time() + timeout
        while True:
            response = await self._client.ask(make(), is_standing=True)
            code = None if response is None else ErrorCode.of(response.error_code)
            if code == ErrorCode.NONE:
                return response
            if code in _FATAL:
                raise FatalError(f"the active controller refuses {what}: {code.name if code is not None else ''}")
            if code != warned and code not in (None, ErrorCode.NOT_CONTROLLER):
                warned = code
                logger.warning("the active controller does not accept %s yet: %s", what, code.name if code else "")
            if code not in (None, ErrorCode.NOT_CONTROLLER) and trio.current_time() >= deadline:
                raise FatalError(f"the active controller refuses {what}: {code.name if code else ''}")
            await trio.sleep(_pause(code))

    async def register_controller(self, endpoints: Sequence[Endpoint]) -> None:
        """Register this node as a controller, with its listeners."""
        metadata = self._metadata
        request = api.ControllerRegistrationRequest(
            controller_id=metadata.node_id,
            incarnation_id=metadata.incarnation_id,
            listeners=endpoint_entries(api.Listener, endpoints),
            features=feature_entries(api.Feature, metadata.features()),
        )
        await self._insist(lambda: request, "the registration of this controller")

    async def register_broker(
        self,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[Uuid],
        rack: str | None,
        *,
        previous_broker_epoch: int = -1,
    ) -> int:
        """Register as a broker; its epoch. It is fenced until ``run`` has sent a heartbeat.

        ``previous_broker_epoch`` is that of the life before if it stopped cleanly: its replicas have lost nothing.
        """
        metadata = self._metadata
        self.broker_epoch = previous_broker_epoch

        def make() -> api.BrokerRegistrationRequest:
            return api.BrokerRegistrationRequest(
                broker_id=metadata.node_id,
                cluster_id=metadata.cluster_id,
                incarnation_id=metadata.incarnation_id,
                listeners=endpoint_entries(api.Listener, endpoints),
                features=feature_entries(api.Feature, metadata.features()),
                rack=rack,
                log_dirs=list(log_dirs),
                previous_broker_epoch=self.broker_epoch,
            )

        self._registration = make
        response = await self._insist(make, "the registration of this broker")
        self.broker_epoch = response.broker_epoch
        return self.broker_epoch

    async def stay_fenced(self, until: trio.Event) -> None:
        """Send heartbeats that ask to stay fenced until the event: this broker is there, and cannot serve yet.

        That is Kafka's ``BrokerState.STARTING``. Nothing is left to others if the node stops meanwhile: ``leave`` does
        nothing.
        """
        interval = self._config.broker_heartbeat_interval_ms / 1000
        while not until.is_set():
            response = await self._heartbeat(want_fence=True)
            if response is not None:
                self._log_refused_beat(ErrorCode.of(response.error_code))
            with trio.move_on_after(interval):
                await until.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send heartbeats until the node leaves; started when this broker is unfenced, or the node leaves.

        The controller hears one every ``broker.heartbeat.interval.ms``; but a broker that is alone has nobody to
        convince, and sends one only when it has something to say. :class:`FatalError` when every log dir has failed, or
        that of the metadata log: another broker can do better; or when the controller cannot be told of one that has
        failed for ``log.dir.failure.timeout.ms`` (KIP-858): it would have this broker lead what is lost.
        """
        self._runs = True
        self._log_manager.on_offline.append(lambda: self._wanted.set())
        self._metadata.subscribe(self._on_image)
        interval = self._config.broker_heartbeat_interval_ms / 1000
        while not self._stops:
            self._wanted = trio.Event()
            self._log_manager.check_any_online()
            self._check_failures_are_told()
            response = await self._heartbeat()
            if response is None:
                await trio.sleep(RETRY_SECONDS)
                continue
            code = ErrorCode.of(response.error_code)
            self._log_refused_beat(code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                with trio.move_on_after(DENIED_SECONDS):
                    await self._wanted.wait()
            elif code:
                await trio.sleep(RETRY_SECONDS)
            if code:
                continue
            if response.is_fenced:
                await trio.sleep(RETRY_SECONDS)
                continue
            if not self.was_unfenced:
                self.was_unfenced = True
                task_status.started()
            self._rests = self.is_alone
            if self._untold:
                continue  # more than a heartbeat has
            with trio.move_on_after(math.inf if self._rests else interval):
                await self._wanted.wait()
        if not self.was_unfenced:
            task_status.started()  # else the starter fails; it is cancelled as soon as this broker has left

    def _log_refused_beat(self, code: ErrorCode) -> None:
        """Warn that the controller does not take heartbeats, once until it takes one or gives another reason."""
        if code is self._refused_beat:
            return
        self._refused_beat = code
        if code and code is not ErrorCode.NOT_CONTROLLER and code not in _FORGOTTEN:
            logger.warning("the active controller refuses the heartbeats of this broker: %s", code.name)

    def _check_failures_are_told(self) -> None:
        now, timeout = trio.current_time(), self._config.log_dir_failure_timeout_ms / 1000
        for log_dir in self._offline_log_dirs():
            if log_dir in self._told_failures:
                self._untold_since.pop(log_dir, None)
            elif now - self._untold_since.setdefault(log_dir, now) >= timeout:
                path = next(each.path for each in self._failed_log_dirs() if each.directory_id == log_dir)
                raise FatalError(
                    f"the active controller could not be told for {timeout:g} s (log.dir.failure.timeout.ms) that the "
                    f"log directory {path} has failed"
                )

    def _failed_log_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self._log_manager.log_dirs if log_dir.offline is not None]

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Have a heartbeat sent at once for what the controller must hear or this broker has to ask about.

        That is: no replica is known to have all of a partition that this broker has; another broker stops, and waits
        until the controller knows that all know it; this one was fenced, is not registered any more, or is not alone
        any more; or there is a new controller, which cannot see that this broker dies before it has heard of it.
        """
        if (image.controller_id, image.epoch) != self._leads:
            self._leads = image.controller_id, image.epoch
            self._tell_anew()
            self._wanted.set()
        self._look_for_questions(delta, image)
        if not delta.changed_brokers:
            return
        own = image.brokers.get(self._metadata.node_id)
        stopping = frozenset(
            broker.id for broker in image.brokers.values() if broker.in_controlled_shutdown and not broker.fenced
        )
        if stopping - self._stopping or own is None or own.epoch != self.broker_epoch or own.fenced:
            self._wanted.set()
        if self._rests and not self.is_alone:
            self._wanted.set()
        self._stopping = stopping

    async def _heartbeat(
        self, *, want_shut_down: bool = False, want_fence: bool = False, is_last: bool = False
    ) -> BrokerHeartbeatResponse | None:
        async with self._beating:
            if self._stops and not (want_shut_down or is_last):
                return None  # it would be unfenced again
            # One that gets lost must not cost the session (Kafka's BrokerServer: half of it).
            within = self._config.broker_session_timeout_ms / 2000
            failed = self._offline_log_dirs()
            told = list(islice(chain(self._untold, self._told), LOG_ENDS))
            response: BrokerHeartbeatResponse | None = await self._client.ask(
                BrokerHeartbeatRequest(
                    broker_id=self._metadata.node_id,
                    broker_epoch=self.broker_epoch,
                    current_metadata_offset=self._metadata.image.offset,
                    want_fence=want_fence,
                    want_shut_down=want_shut_down,
                    offline_log_dirs=failed,
                    cordoned_log_dirs=self._cordoned_log_dirs(),
                    is_last=is_last,
                    log_ends=list(self._log_ends(told)),
                ),
                within,
                is_standing=True,
            )
        if response is None:
            for key in told:
                if self._untold.pop(key, key) is None:
                    self._untold[key] = None  # behind the others: perhaps it was heard, and only the answer was late
        elif not response.error_code:
            self._told_failures.update(failed)
            for key in told:
                if self._forget(key):  # else it is no question any more
                    self._told[key] = None
        if response is not None and response.error_code in _FORGOTTEN and not (want_shut_down or is_last):
            # The controller knows another life of this broker, or none: begin again.
            assert self._registration is not None
            logger.warning("the controller has forgotten this broker's registration; it registers again")
            answer = await self._insist(self._registration, "the registration of this broker")
            self.broker_epoch = answer.broker_epoch
            self._tell_anew()
        return response

    def _look_for_questions(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.deleted_topics:
            for key in [key for key in (*self._untold, *self._told) if key[0] in delta.deleted_topics]:
                self._forget(key)
        for topic, index, partition in delta.partitions_in(image):
            key = topic.id, index
            self._forget(key)
            if is_asked_for(partition) and self._metadata.node_id in partition.replicas:
                self._untold[key] = None  # also after a change: it may have been led meanwhile
                self._wanted.set()

    def _forget(self, key: Key) -> bool:
        """Take a partition out of those in question; whether it was."""
        return self._untold.pop(key, key) is None or self._told.pop(key, key) is None

    def _tell_anew(self) -> None:
        """Have all ends told again: the controller does not know them any more."""
        self._untold.update(self._told)
        self._told.clear()

    def _log_ends(self, asked: Iterable[Key]) -> Iterator[LogEndData]:
        """Returns what this broker has of partitions of which no replica is known to have everything."""
        for topic_id, index in asked:
            tp = TopicPartition(self._metadata.image.topics.by_id[topic_id].name, index)
            log = self._log_manager.log_of(tp)
            if log is not None:
                latest = self._metadata.image.topics.by_id[topic_id].partitions[index].leader_epoch
                yield LogEndData(topic_id=topic_id, partition=index, **log_end(log, latest)._asdict())

    def _offline_log_dirs(self) -> list[Uuid]:
        """The log dirs that the controller is told of as failed; none by a broker that is alone.

        Its `DirectoryAssignments` do not run, so the metadata may name another directory of a replica than the one
        that it is in. Nobody else could lead it anyway.
        """
        if self.is_alone:
            return []
        return [log_dir.directory_id for log_dir in self._failed_log_dirs() if log_dir.directory_id is not None]

    def _cordoned_log_dirs(self) -> list[Uuid] | None:
        """The log dirs that get no new replicas; None while there were none, and below the level that has them."""
        image = self._metadata.image
        if image.features.metadata_version < CORDONED_DIRECTORIES:
            return None
        own = image.brokers.get(self._metadata.node_id)
        cordoned = [
            log_dir.directory_id
            for log_dir in self._log_manager.log_dirs
            if log_dir.cordoned and log_dir.directory_id is not None
        ]
        return cordoned if cordoned or (own is not None and own.cordoned_log_dirs) else None

    def beat_soon(self) -> None:
        """Have the next heartbeat sent at once."""
        self._wanted.set()

    async def leave(self) -> None:
        """Have others lead what this node leads, and wait until all know it, for :data:`LEAVE_SECONDS` at most.

        Without ``controlled.shutdown.enable`` it hands over nothing, and leads until its session is over.
        """
        others = self._metadata.image.brokers.values()
        if not self._runs or not any(broker.active for broker in others if broker.id != self._metadata.node_id):
            return  # nobody could take over anything
        self._stops = True
        self._wanted.set()
        if not self._config.controlled_shutdown_enable:
            with trio.move_on_after(NO_CONTROLLER_SECONDS):
                await self._heartbeat(is_last=True)
            return
        with trio.move_on_after(LEAVE_SECONDS):
            while True:
                answer = None
                with trio.move_on_after(NO_CONTROLLER_SECONDS) as limit:
                    while answer is None:
                        answer = await self._heartbeat(want_shut_down=True)
                        if answer is None:
                            await trio.sleep(RETRY_SECONDS)
                if limit.cancelled_caught or answer is None:
                    logger.warning("no controller answers that this broker stops")
                    return
                if answer.should_shut_down or answer.error_code in _FORGOTTEN:
                    return
                await trio.sleep(_pause(ErrorCode.of(answer.error_code)) / 2)
        logger.warning("the controller does not let this broker stop within %g s; it stops all the same", LEAVE_SECONDS)


def log_end(log: PartitionLog, latest_epoch: int) -> LogEnd:
    """Returns what a log has, by its leader epochs up to the latest that there is: no checksum covers a batch's."""
    damage = log.damage
    end = max((log.log_end_offset, *(each.end_offset for each in damage if each.end_offset < UNKNOWN_END)))
    missing = sum(min(each.end_offset, end) - max(each.start_offset, log.log_start_offset) for each in damage)
    if any(each.end_offset == UNKNOWN_END for each in damage):
        missing = end = max(end, 1)  # of such a log nobody knows what it had, and nothing of it counts
    # An epoch that wrote nothing yet was only heard of.
    entries = [entry for entry in log.leader_epochs.entries if entry[1] < end]
    known = [entry for entry in entries if entry[0] <= latest_epoch]
    epoch, began = known[-1] if known else (-1, 0)
    return LogEnd(epoch, began, end, missing + len(entries) - len(known))


def _pause(code: ErrorCode | None) -> float:
    """Seconds between two attempts, after an answer with this error."""
    return DENIED_SECONDS if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else RETRY_SECONDS
