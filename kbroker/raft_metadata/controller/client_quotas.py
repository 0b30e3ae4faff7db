"""AlterClientQuotas: quotas are set and removed (Kafka's ``ClientQuotaControlManager``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.view import (
    MAX_RECORDS_PER_USER_OP,
    ControllerResult,
    ControllerView,
    too_many_records,
)
from kbroker.security.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    address_of,
)
from kbroker.wire.records.metadata import ClientQuotaRecord, EntityData

Entity = tuple[tuple[str, "str | None"], ...]
"""Sorted (type, name or None for the default) pairs."""

_LARGEST: Mapping[str, tuple[float, str]] = {
    PRODUCER_BYTE_RATE: (2.0**63, "a LONG"),
    CONSUMER_BYTE_RATE: (2.0**63, "a LONG"),
    CONNECTION_CREATION_RATE: (2.0**31 - 1, "an INT"),
}
"""Of those that are whole numbers: the largest value, and its type in Kafka."""

_OF_CLIENTS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
_OF_ADDRESSES = frozenset({CONNECTION_CREATION_RATE})


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """The changes for one entity. ``changes`` has (key, value) pairs, None for a quota that is to go."""

    entity: Entity
    changes: Sequence[tuple[str, float | None]]


def alter_client_quotas(
    view: ControllerView, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
) -> ControllerResult[Mapping[Entity, ApiError | None]]:
    """The outcome for each entity: None, or why nothing of it changes. An entity may be named once in a request.

    ``ApiError`` POLICY_VIOLATION if they are too many for one change.
    """
    outcomes: dict[Entity, ApiError | None] = {}
    records: list[object] = []
    for alteration in alterations:
        entity = alteration.entity
        if entity in outcomes:
            outcomes[entity] = _invalid(f"Ignoring duplicate entity {_told(entity)}")
            continue
        try:
            own = _records(view, alteration)
        except ApiError as error:
            outcomes[entity] = error.without_traceback()
        else:
            outcomes[entity] = None
            records += own
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise too_many_records()
    return ControllerResult(outcomes, [] if validate_only else records)


def _records(view: ControllerView, alteration: QuotaAlteration) -> list[ClientQuotaRecord]:
    entity = alteration.entity
    changes: dict[str, float | None] = {}
    for key, value in alteration.changes:
        if key in changes:
            # Kafka finds the entity in its outcomes then, and says this in the place of the duplicate key.
            raise _invalid(f"Ignoring duplicate entity {_told(entity)}")
        changes[key] = value
    keys = _check_entity(entity)
    current = view.image.principals.client_quotas.get(entity, {})
    records = []
    for key, value in changes.items():
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(entity=_entity_data(entity), key=key, remove=True))
            continue
        _check_value(keys, key, value)
        if current.get(key) != value:
            records.append(ClientQuotaRecord(entity=_entity_data(entity), key=key, value=value))
    return records


def _check_entity(entity: Entity) -> frozenset[str]:
    """The keys of quotas that an entity may have. ``ApiError`` if there is no such entity."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = names[IP]
    if address is not None and address_of(address) is None:
        # Names of hosts are not resolved: a broker does not wait for a name server while it decides on metadata.
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _OF_ADDRESSES


def _check_value(keys: frozenset[str], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if value != value:
        raise _invalid(f"Quota {key} must be a number")  # Kafka takes NaN, which limits nobody
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if key in _LARGEST:
        largest, kind = _LARGEST[key]
        if value > largest:
            raise _invalid(f"Proposed value for {key} is too large for {kind}.")
        if value % 1 > 1e-6:
            raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _told(entity: Entity) -> str:
    """The text that Java has for such a map."""
    pairs = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{pairs}}})"


def _entity_data(entity: Entity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
