"""Lets the active controller remove delegation tokens that have expired (``QuorumController``'s periodic task)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError
from kbroker.node.controller.metadata_plane import MetadataPlane

if TYPE_CHECKING:
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

BETWEEN_BATCHES = 0.01
"""Seconds, if there is more to do than is done at a time."""

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
