"""All checks: imports the modules that register them."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.tools.doctor.checks import (
    brokers,
    clients,
    configuration,
    connections,
    groups,
    machine,
    replication,
    topics,
)
from kbroker.tools.doctor.findings import CHECKS, Check

MODULES = (connections, brokers, replication, topics, groups, clients, configuration, machine)


def all_checks() -> Mapping[str, Check]:
    """Name -> check, by subject."""
    subjects = [module.__name__.rpartition(".")[2] for module in MODULES]
    return dict(sorted(CHECKS.items(), key=lambda item: subjects.index(item[1].subject)))
