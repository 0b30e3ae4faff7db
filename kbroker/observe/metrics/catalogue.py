"""All families that a node may show, in the order of docs/metrics.md."""

from __future__ import annotations

from types import ModuleType

from kbroker.observe.metrics import client_families, controller_families, coordinator_families, families
from kbroker.observe.metrics.family import Family

MODULES: tuple[ModuleType, ...] = (families, controller_families, coordinator_families, client_families)


def all_families() -> list[Family]:
    """Every family of the tables. Clients' own metrics (KIP-714) have names that no table can know."""
    found: list[Family] = []
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, Family):
                found.append(value)
            elif isinstance(value, dict):
                found.extend(family for family in value.values() if isinstance(family, Family))
    return found
