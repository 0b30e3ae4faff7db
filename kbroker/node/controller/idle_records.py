"""No-op records of the active controller, which it writes though nothing happens (KIP-835).

By them every node that follows the metadata log hears of the controller at least so often, and a controller that is cut
off from the other voters notices that nothing of it is committed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kbroker.errors import ApiError
from kbroker.node.controller.controller_log import ControllerLog
from kbroker.node.controller.image_publisher import ImagePublisher
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.runtime.env import Env
from kbroker.runtime.timing import Alarm
from kbroker.wire.records.metadata import NoOpRecord


class IdleRecords:
    """Writes a record every interval while this node is the active controller, as Kafka's ``writeNoOpRecord`` task.

    ``run`` it beside the quorum. A controller whose log nobody else follows has nobody to tell, and sleeps.
    """

    def __init__(
        self,
        controller_log: ControllerLog,
        images: ImagePublisher,
        env: Env,
        interval_ms: int,
        is_followed: Callable[[], bool],
        is_full: Callable[[], bool],
    ) -> None:
        """``interval_ms`` is ``metadata.max.idle.interval.ms``; ``is_followed``: whether other nodes have the log;
        ``is_full``: whether the log's disk is, of which the last room is for what happens."""
        self._log = controller_log
        self._images = images
        self._env = env
        self._interval = interval_ms / 1000
        self._is_followed = is_followed
        self._is_full = is_full
        self._alarm = Alarm()
        controller_log.on_active(self._alarm.ring)

    async def run(self) -> None:
        """Write those that are due, until cancelled."""
        log = self._log
        while True:
            if not log.is_active:
                await self._alarm.sleep_until(math.inf)
                continue
            await self._images.wait_for(lambda image: self._is_followed() or not log.is_active)
            await self._alarm.sleep_until(self._env.now() + self._interval)
            if log.is_active and not self._is_full():
                try:
                    await log.submit(lambda view: ControllerResult(None, [NoOpRecord()]))
                except ApiError:
                    continue  # this node does not lead any more
