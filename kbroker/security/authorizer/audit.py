"""The audit log: a line for each decision of an authorizer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kbroker.security.authorizer.hosts import java_text
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.shown import shown

AUDIT_LOG: Final = "kbroker.authorizer"
"""The logger of decisions."""

_log = logging.getLogger(AUDIT_LOG)


def write_audit(
    allowed: bool,
    principal: KafkaPrincipal,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    api: str,
    reason: Callable[[], str],
) -> None:
    """Write what was decided: a denial at INFO, else at DEBUG. ``reason`` is asked only for a line that is written."""
    level = logging.DEBUG if allowed else logging.INFO
    if not _log.isEnabledFor(level):
        return
    _log.log(
        level,
        "%s: %s from %s, %s on %s:%s for %s: %s",
        "Allowed" if allowed else "Denied",
        shown(str(principal)),
        java_text(host),
        operation.name,
        resource_type.name,
        shown(name),
        api,
        reason(),
    )
