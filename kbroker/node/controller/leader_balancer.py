"""Lets the active controller elect leaders by itself, from time to time, for partitions with none or a wrong one."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.config_schema import UNCLEAN_LEADER_ELECTION
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.elections import balance_leaders, elect_unclean_leaders
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

logger = logging.getLogger(__name__)

UNCLEAN_ELECTION_INTERVAL = 300.0
"""Seconds between two looks for partitions that may be led by whoever lives (Kafka's
``unclean.leader.election.interval.ms``); a change of the property is acted on at once."""

BETWEEN_BATCHES = 0.01
"""Seconds, if there is more to do than is done at a time."""


class LeaderBalancer:
    """``run`` it in a nursery on every controller; it works while this node is the active one."""

    def __init__(self, metadata: MetadataPlane, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._config = config
        self._unclean_allowed = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        self._metadata.subscribe(self._on_image)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._elect_unclean)
            if self._config.auto_leader_rebalance_enable:
                nursery.start_soon(self._balance)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if any(UNCLEAN_LEADER_ELECTION in image.configs.get(resource) for resource in delta.changed_configs):
            self._unclean_allowed.set()

    async def _balance(self) -> None:
        while True:
            await trio.sleep(self._config.leader_imbalance_check_interval_seconds)
            await self._submit(lambda view: balance_leaders(view))

    async def _elect_unclean(self) -> None:
        while True:
            with trio.move_on_after(UNCLEAN_ELECTION_INTERVAL):
                await self._unclean_allowed.wait()
            self._unclean_allowed = trio.Event()
            await self._submit(lambda view: elect_unclean_leaders(view))

    async def _submit(self, operation: Callable[[ControllerView], ControllerResult[bool]]) -> None:
        while self._metadata.is_leader:
            try:
                more = await self._metadata.submit(operation)
            except ApiError as error:
                logger.info("leaders could not be balanced: %s", error)
                return
            if not more:
                return
            await trio.sleep(BETWEEN_BATCHES)
