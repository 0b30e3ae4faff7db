"""The audit log of the console: a line of JSON for each write and each sign-in."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from kbroker.client.records_io.json_types import Json

AUDIT: Final = logging.getLogger("kbroker.tools.console.audit")


def write_audit(
    user: str | None, address: str, action: str, target: str, details: Json, outcome: str, cluster: str = ""
) -> None:
    """Tell who did what to what, from where, and what came of it; ``cluster``: in which, where there are several.

    JSON escapes whatever the names hold.
    """
    AUDIT.info(
        "%s",
        json.dumps(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "user": user,
                "address": address,
                "action": action,
                "target": target,
                "details": details,
                "outcome": outcome,
                **({"cluster": cluster} if cluster else {}),
            }
        ),
    )
