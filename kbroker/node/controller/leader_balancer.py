"""Work that the active controller does from time to time (``QuorumController``'s periodic tasks).

It elects leaders for partitions with none or a wrong one, and removes delegation tokens that have expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.config_schema import UNCLEAN_LEADER_ELECTION
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.requested_elections import balance_leaders, elect_missing_leaders
from kbroker.raft_metadata.image import NO_LEADER, MetadataDelta, MetadataImage
from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

ELECTION_INTERVAL = 300.0
"""Seconds between two looks for partitions that may be led by whoever lives (Kafka's
``unclean.leader.election.interval.ms``); a new controller, and a change of the property, look at once."""

BETWEEN_BATCHES = 0.01
"""Seconds, if there is more to do than is done at a time."""


class LeaderBalancer:
    """``run`` it in a nursery on every controller; it works while this node is the active one."""

    def __init__(self, metadata: MetadataPlane, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._config = config
        self._may_elect = trio.Event()
        self._leads = NO_LEADER, -1

    async def run(self) -> None:
        """Until cancelled."""
        self._metadata.subscribe(self._on_image)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._elect_missing)
            if self._config.auto_leader_rebalance_enable:
                nursery.start_soon(self._balance)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        leads = image.controller_id, image.epoch
        if leads != self._leads:  # the same node may have left something undone, too, in an earlier epoch
            self._leads = leads
            self._may_elect.set()
        if any(UNCLEAN_LEADER_ELECTION in image.configs.get(resource) for resource in delta.changed_configs):
            self._may_elect.set()

    async def _balance(self) -> None:
        while True:
            await trio.sleep(self._config.leader_imbalance_check_interval_seconds)
            await self._submit(lambda view: balance_leaders(view))

    async def _elect_missing(self) -> None:
        while True:
            with trio.move_on_after(ELECTION_INTERVAL):
                await self._may_elect.wait()
            self._may_elect = trio.Event()
            await self._submit(lambda view: elect_missing_leaders(view))

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


_DEFAULT_INTERVAL_MS = 3_600_000
"""Of ``delegation.token.expiry.check.interval.ms``: a node where it is not set does not import the tables."""


class TokenExpiry:
    """``run`` it in a nursery on every controller; it works while this node is the active one.

    It needs no key: tokens that were made when there was one expire as well.
    """

    def __init__(self, metadata: MetadataPlane, config: BrokerConfig, env: Env) -> None:
        self._metadata = metadata
        self._env = env
        self._interval = config.values.get("delegation.token.expiry.check.interval.ms", _DEFAULT_INTERVAL_MS) / 1000

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(self._interval)
            await self._remove_expired()

    async def _remove_expired(self) -> None:
        more = True
        while more and self._metadata.is_leader and self._metadata.image.principals.delegation_tokens:
            from kbroker.raft_metadata.controller.delegation_tokens import remove_expired_tokens

            try:
                more = await self._metadata.submit(lambda view: remove_expired_tokens(view, self._env.wall_clock_ms()))
            except ApiError as error:
                logger.info("delegation tokens that have expired could not be removed: %s", error)
                return
            await trio.sleep(BETWEEN_BATCHES)
