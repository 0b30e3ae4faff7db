"""Brokers and controllers: registration, fencing, controlled shutdown (Kafka's ``ClusterControlManager``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.broker_changes import (
    records_after_unclean_shutdown,
    records_to_elect_with,
    records_to_leave_isrs,
)
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.image import (
    DIR_LOST,
    BrokerImage,
    ControllerImage,
    Endpoint,
    PartitionImage,
    register_broker_record,
    register_controller_record,
)
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION, CONTROLLER_UNREGISTRATION, DIRECTORIES
from kbroker.types import Uuid, uuid_to_str
from kbroker.value_types import NamedTuple, replace
from kbroker.wire.records.metadata import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)

RESERVED_DIRECTORIES = 100
"""Directory ids below this number have meanings of their own (KIP-858)."""


class BrokerRegistration(NamedTuple):
    """The fields of BrokerRegistration: a broker's addresses, features and log directories."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: Sequence[Endpoint]
    features: Mapping[str, tuple[int, int]]
    log_dirs: Sequence[Uuid]
    rack: str | None = None
    previous_broker_epoch: int = -1


def check_broker_epoch(view: ControllerView, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The broker. ``ApiError`` BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH for an earlier life of it."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker_epoch}, but got broker epoch {broker.epoch}"
        )
    return broker


def register_broker(view: ControllerView, registration: BrokerRegistration) -> ControllerResult[int]:
    """Register a broker, fenced at first; its epoch. The same incarnation keeps its state.

    A new incarnation is in no ISR. One that names the epoch of its previous life has stopped cleanly; any other may
    have lost records, and is no eligible leader replica either (KIP-966), as one is not whose log directory is gone.

    ``ApiError``: DUPLICATE_BROKER_REGISTRATION if another incarnation is unfenced, INVALID_REGISTRATION for
    directories that are another broker's, UNSUPPORTED_VERSION if it cannot work at a finalized feature level.
    """
    broker_id = registration.broker_id
    image = view.image
    old = image.brokers.get(broker_id)
    same_incarnation = old is not None and old.incarnation_id == registration.incarnation_id
    if old is not None and not same_incarnation and old.active:
        _check_previous_life(old, registration)
    _check_features(view, registration)
    _check_directories(view, registration)
    returns_alone = len(image.brokers) == 1 and old is not None and registration.previous_broker_epoch == old.epoch
    broker = BrokerImage(
        id=broker_id,
        epoch=old.epoch if old is not None and same_incarnation else view.next_offset,
        incarnation_id=registration.incarnation_id,
        endpoints={endpoint.name: endpoint for endpoint in registration.endpoints},
        features=dict(registration.features),
        rack=registration.rack,
        fenced=old.fenced if old is not None and same_incarnation else True,
        in_controlled_shutdown=(old.in_controlled_shutdown if old is not None and same_incarnation else False),
        log_dirs=tuple(sorted(registration.log_dirs)),
    )
    level = image.features.metadata_version
    if same_incarnation or returns_alone:
        # The only broker keeps its partitions if it stopped cleanly: no other could have taken over anything. If not,
        # it may have lost records, and consumers are to see by the leader epoch that others took their offsets.
        return ControllerResult(broker.epoch, [register_broker_record(broker, level)])

    def records() -> Iterator[object]:
        for record in _records_for_new_life(view, broker, old, registration.previous_broker_epoch):
            yield record
            result.response += 1
        # The offset of its own record: a broker that has read that far has read all that came with it.
        yield register_broker_record(replace(broker, epoch=result.response), level)

    result = ControllerResult(view.next_offset, records())
    return result


def _check_previous_life(old: BrokerImage, registration: BrokerRegistration) -> None:
    """``ApiError`` DUPLICATE_BROKER_REGISTRATION unless the registered incarnation must be dead.

    Kafka asks its heartbeats. Before the first heartbeat of this life, the previous life counts as dead if the broker
    names its epoch or no epoch, or if both have a log directory in common.
    """
    known = registration.previous_broker_epoch in (-1, old.epoch) or not set(old.log_dirs).isdisjoint(
        registration.log_dirs
    )
    if not known:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"Another broker is registered with that broker id {old.id}."
        )


def _check_features(view: ControllerView, registration: BrokerRegistration) -> None:
    for name, level in view.image.features.levels.items():
        low, high = registration.features.get(name, (0, 0))
        if not low <= level <= high:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )


def _records_for_new_life(
    view: ControllerView, broker: BrokerImage, old: BrokerImage | None, previous_epoch: int
) -> Iterator[object]:
    if not view.image.features.elr_enabled:
        return records_to_leave_isrs(view, broker.id)
    if old is None or previous_epoch != old.epoch:
        return records_after_unclean_shutdown(view, broker.id)

    def is_gone(partition: PartitionImage) -> bool:
        directory = partition.directory(broker.id)
        return directory != DIR_LOST and not broker.has_online_dir(directory)

    # Apache Kafka leaves it eligible for what was in a directory that is gone, and an empty log would be elected.
    return chain(
        records_to_leave_isrs(view, broker.id, lambda partition: not is_gone(partition)),
        records_after_unclean_shutdown(view, broker.id, is_gone),
    )


def _check_directories(view: ControllerView, registration: BrokerRegistration) -> None:
    own = registration.log_dirs
    if view.image.features.metadata_version < DIRECTORIES:
        return
    problem = None
    if not own:
        problem = "No directories specified in request"
    elif any(int.from_bytes(directory, "big") < RESERVED_DIRECTORIES for directory in own):
        problem = "Reserved directory ID in request"
    elif len(set(own)) != len(own):
        problem = "Duplicate directory ID in request"
    for other in view.image.brokers.values():
        shared = set() if other.id == registration.broker_id else set(own) & set(other.log_dirs)
        if shared and problem is None:
            problem = f"Broker {other.id} is already registered with directory {uuid_to_str(min(shared))}"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def unfence_broker(view: ControllerView, broker_id: int, broker_epoch: int) -> ControllerResult[None]:
    """Let the broker lead and be seen by clients; it becomes the leader of leaderless partitions that it can lead."""
    broker = check_broker_epoch(view, broker_id, broker_epoch)
    if not broker.fenced:
        return ControllerResult(None)
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=-1)
    if broker.in_controlled_shutdown:  # only a new registration ends that
        return ControllerResult(None, [change])
    return ControllerResult(None, chain([change], records_to_elect_with(view, broker_id)))


def fence_broker(view: ControllerView, broker_id: int, broker_epoch: int) -> ControllerResult[None]:
    """Hide the broker from clients; its partitions move to other in-sync replicas or lose their leader."""
    broker = check_broker_epoch(view, broker_id, broker_epoch)
    if broker.fenced:
        return ControllerResult(None)
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=1)
    return ControllerResult(None, chain(records_to_leave_isrs(view, broker_id), [change]))


def begin_controlled_shutdown(view: ControllerView, broker_id: int, broker_epoch: int) -> ControllerResult[None]:
    """Prepare the broker's stop: it leaves the ISRs, and others lead its partitions."""
    broker = check_broker_epoch(view, broker_id, broker_epoch)
    records = records_to_leave_isrs(view, broker_id)
    if broker.in_controlled_shutdown:
        return ControllerResult(None, records)
    # The last: should the rest be all that is committed, it is begun again.
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1)
    return ControllerResult(None, chain(records, [change]))


def unregister_broker(view: ControllerView, broker_id: int) -> ControllerResult[None]:
    """Forget a broker that will not come back; other in-sync replicas lead its partitions, or nobody does.

    ``ApiError`` BROKER_ID_NOT_REGISTERED. A running broker has to register again to belong to the cluster.
    """
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    # Apache Kafka leaves it among the eligible leader replicas; but a broker that registers under its id later may have
    # empty disks.
    change = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    return ControllerResult(None, chain(records_after_unclean_shutdown(view, broker_id), [change]))


def register_controller(view: ControllerView, registration: ControllerImage) -> ControllerResult[None]:
    """Write down a quorum node's endpoints and features, unless the image has them already.

    ``ApiError`` UNSUPPORTED_VERSION below the level of ``metadata.version`` that has controllers.
    """
    if view.image.features.metadata_version < CONTROLLER_REGISTRATION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller registrations."
        )
    known = view.image.controllers.get(registration.id)
    if known == registration:
        return ControllerResult(None)
    return ControllerResult(None, [register_controller_record(registration)])


def unregister_controller(view: ControllerView, controller_id: int, voters: Collection[int]) -> ControllerResult[None]:
    """Forget the registration of a controller that will not come back (KIP-1312, Kafka's ``ClusterControlManager``).

    ``ApiError``: INVALID_REQUEST for one of the ``voters`` (KAFKA-20865): it could be without a feature that the others
    agree on meanwhile; UNSUPPORTED_VERSION below the level of ``metadata.version`` that has the record;
    CONTROLLER_ID_NOT_REGISTERED.
    """
    if controller_id in voters:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot unregister controller {controller_id} because it is part of the voter set.",
        )
    if view.image.features.metadata_version < CONTROLLER_UNREGISTRATION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in view.image.controllers:
        raise ApiError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered."
        )
    return ControllerResult(None, [UnregisterControllerRecord(controller_id=controller_id)])
