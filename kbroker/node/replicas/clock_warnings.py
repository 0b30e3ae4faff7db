"""Warns when clocks are apart: records are refused by ``message.timestamp.after.max.ms`` (or ``before``).

With the defaults that is an hour ahead, so a node whose clock is late by more refuses all that honest clients send it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.errors import ApiError
    from kbroker.runtime.env import Env
    from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)

SILENT_SECONDS = 60.0
"""Seconds between two warnings: all producers meet the same clock."""


class ClockWarnings:
    """Logs one line once in a while, for the whole node."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._told_at = -SILENT_SECONDS

    def on_refused(self, topic_partition: TopicPartition, error: ApiError) -> None:
        """Records were refused with INVALID_TIMESTAMP."""
        now = self._env.now()
        if now < self._told_at + SILENT_SECONDS:
            return
        self._told_at = now
        here = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self._env.wall_clock_ms() // 1000))
        record_errors = getattr(error, "record_errors", ())
        logger.warning(
            "records for %s are refused with INVALID_TIMESTAMP: %s; it is %s here, is a clock wrong?",
            topic_partition,
            record_errors[0][1] if record_errors else error.message,
            here,
        )
