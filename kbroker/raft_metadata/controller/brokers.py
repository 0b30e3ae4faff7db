"""Brokers: registration, fencing, and which of them may hold replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.partition_changes import DIRECTORIES
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    register_broker_record,
    register_controller_record,
)
from kbroker.types import Uuid, uuid_to_str
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller


RESERVED_DIRECTORIES = 100
"""Directory ids below this number have meanings of their own (KIP-858)."""


class BrokerRegistration(NamedTuple):
    """What a broker says of itself when it registers."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: Sequence[Endpoint]
    features: Mapping[str, tuple[int, int]]
    log_dirs: Sequence[Uuid]
    rack: str | None = None
    previous_broker_epoch: int = -1


class BrokerControl:
    """Decides on brokers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def is_active(self, broker_id: int) -> bool:
        """Registered, unfenced and not shutting down."""
        broker = self._controller.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def check_epoch(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """The broker; ``ApiError`` BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH for an earlier life of it."""
        broker = self._controller.image.brokers.get(broker_id)
        if broker is None:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker registration found for broker id {broker_id}"
            )
        if broker.epoch != broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker_epoch}, but got broker epoch {broker.epoch}",
            )
        return broker

    def register(self, registration: BrokerRegistration) -> ControllerResult[int]:
        """Register a broker, fenced at first, and answer with its epoch. The same incarnation keeps its state.

        A new incarnation is in no ISR; and unless it names the epoch of the life before, which shows that it stopped
        cleanly, it may have lost records and is no eligible leader replica either (KIP-966).

        ``ApiError``: DUPLICATE_BROKER_REGISTRATION if another incarnation is unfenced, INVALID_REGISTRATION for
        directories that are another broker's, UNSUPPORTED_VERSION if it cannot work at a finalized feature level.
        """
        broker_id = registration.broker_id
        image = self._controller.image
        old = image.brokers.get(broker_id)
        same_incarnation = old is not None and old.incarnation_id == registration.incarnation_id
        if old is not None and not same_incarnation and old.active:
            # Kafka leans on heartbeats here; with no heartbeat for this life yet, the previous one is taken for dead
            # when the broker names its epoch, and otherwise only when it is this very process's data directory.
            known = registration.previous_broker_epoch in (-1, old.epoch) or not set(old.log_dirs).isdisjoint(
                registration.log_dirs
            )
            if not known:
                raise ApiError(
                    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                    f"Another broker is registered with that broker id {broker_id}.",
                )
        for name, level in image.features.levels.items():
            low, high = registration.features.get(name, (0, 0))
            if not low <= level <= high:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {low} and {high}, inclusive.",
                )
        self._check_directories(registration)
        records: list[Any] = []
        epoch = self._controller.next_offset
        if same_incarnation and old is not None:
            epoch = old.epoch
        elif old is None or len(image.brokers) > 1:
            # A broker that has always been alone stays what it was: nobody could have taken over anything.
            records += self._records_for_new_life(broker_id, old, registration.previous_broker_epoch)
        broker = BrokerImage(
            id=broker_id,
            epoch=epoch,
            incarnation_id=registration.incarnation_id,
            endpoints={endpoint.name: endpoint for endpoint in registration.endpoints},
            features=dict(registration.features),
            rack=registration.rack,
            fenced=old.fenced if old is not None and same_incarnation else True,
            in_controlled_shutdown=(old.in_controlled_shutdown if old is not None and same_incarnation else False),
            log_dirs=tuple(sorted(registration.log_dirs)),
        )
        return ControllerResult(epoch, [*records, register_broker_record(broker)])

    def _records_for_new_life(self, broker_id: int, old: BrokerImage | None, previous_epoch: int) -> Sequence[Any]:
        leadership = self._controller.leadership
        stopped_cleanly = old is not None and previous_epoch == old.epoch
        if stopped_cleanly or not self._controller.image.features.elr_enabled:
            return leadership.records_without(broker_id)
        return leadership.records_after_unclean_shutdown(broker_id)

    def _check_directories(self, registration: BrokerRegistration) -> None:
        own = registration.log_dirs
        if self._controller.image.features.metadata_version < DIRECTORIES:
            return
        problem = None
        if not own:
            problem = "No directories specified in request"
        elif any(int.from_bytes(directory, "big") < RESERVED_DIRECTORIES for directory in own):
            problem = "Reserved directory ID in request"
        elif len(set(own)) != len(own):
            problem = "Duplicate directory ID in request"
        for other in self._controller.image.brokers.values():
            shared = set() if other.id == registration.broker_id else set(own) & set(other.log_dirs)
            if shared and problem is None:
                problem = f"Broker {other.id} is already registered with directory {uuid_to_str(min(shared))}"
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)

    def unfence(self, broker_id: int, broker_epoch: int) -> ControllerResult[None]:
        """Let the broker lead and be seen by clients; leaderless partitions that it can lead get it as leader."""
        broker = self.check_epoch(broker_id, broker_epoch)
        records: list[Any] = []
        if broker.fenced:
            records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=-1))
            if not broker.in_controlled_shutdown:  # which nothing but a new registration takes back
                records.extend(self._controller.leadership.records_with(broker_id))
        return ControllerResult(None, records)

    def fence(self, broker_id: int, broker_epoch: int) -> ControllerResult[None]:
        """Take the broker out of sight: its partitions move to other in-sync replicas or lose their leader."""
        broker = self.check_epoch(broker_id, broker_epoch)
        records: list[Any] = []
        if not broker.fenced:
            records.extend(self._controller.leadership.records_without(broker_id))
            records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=1))
        return ControllerResult(None, records)

    def begin_controlled_shutdown(self, broker_id: int, broker_epoch: int) -> ControllerResult[None]:
        """The broker wants to stop: it leaves the ISRs, and others lead what it leads."""
        broker = self.check_epoch(broker_id, broker_epoch)
        records: list[Any] = []
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1)
            )
        records.extend(self._controller.leadership.records_without(broker_id))
        return ControllerResult(None, records)

    def unregister(self, broker_id: int) -> ControllerResult[None]:
        """Forget a broker that will not come back; what it led is led by other in-sync replicas or by nobody.

        ``ApiError`` BROKER_ID_NOT_REGISTERED. A broker that runs has to register again to be one of the cluster.
        """
        broker = self._controller.image.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        records: list[Any] = []
        records.extend(self._controller.leadership.records_for_unregistered(broker_id))
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
        return ControllerResult(None, records)

    def register_controller(self, registration: ControllerImage) -> ControllerResult[None]:
        """Write down a quorum node's endpoints and features; nothing if they are known already."""
        known = self._controller.image.controllers.get(registration.id)
        if known == registration:
            return ControllerResult(None)
        return ControllerResult(None, [register_controller_record(registration)])
