"""Administrators' questions about quotas (keys 48 and 49)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.client.cluster import Client, refuse
from kbroker.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

_EXACT = 0
_DEFAULT = 1

Entity = Mapping[str, "str | None"]
"""The owner of a quota: a name by type (``user``, ``client-id``, ``ip``), None for the default of all."""


class EntityQuotas(NamedTuple):
    """The quotas of one entity, by key."""

    entity: dict[str, str | None]
    values: dict[str, float]


def describe_quotas(client: Client, entity: Entity) -> list[EntityQuotas]:
    """The quotas of all entities that have these parts, and perhaps others, in an order of their own."""
    response = client.ask_any(
        DescribeClientQuotasRequest(
            components=[
                ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
                for kind, name in entity.items()
            ]
        )
    )
    refuse(response.error_code, "quotas", response.error_message)
    found = [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in sorted(entry.entity, key=lambda part: part.entity_type)},
            {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.entity.items()])


def alter_quotas(client: Client, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Set an entity's quotas, those with None to nothing. ``ResponseError``."""

    def check(response: AlterClientQuotasResponse) -> None:
        for entry in response.entries:
            refuse(entry.error_code, "quota", entry.error_message)

    client.ask_controller(
        AlterClientQuotasRequest(
            entries=[
                AlteredEntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                    ops=[
                        OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in changes.items()
                    ],
                )
            ]
        ),
        check,
    )
