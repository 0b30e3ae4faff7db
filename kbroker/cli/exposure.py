"""Listeners that others reach over the network, and that ask too little of them: told at the start, and by ``info``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from kbroker.config import BrokerConfig, Listener

log = logging.getLogger("kbroker")

_OPEN = "NO AUTHENTICATION on %s: whoever reaches it over the network can read, change and delete everything"
_ANONYMOUS = "NO AUTHENTICATION on %s: whoever reaches it over the network may do what User:ANONYMOUS may"
_READABLE = "NO ENCRYPTION on %s: whoever can see the network's traffic reads passwords and records"


class Exposure(NamedTuple):
    """Listeners beyond the loopback interface that lack something."""

    open: Sequence[Listener]
    """Nobody has to say who they are, and there is no authorizer."""
    anonymous: Sequence[Listener]
    """Nobody has to say who they are; an authorizer decides what they may do nevertheless."""
    readable: Sequence[Listener]
    """Clients say who they are, in the clear."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Exposure:
        """Those of a node's configuration."""
        unknown: list[Listener] = []
        readable: list[Listener] = []
        for listener in config.listeners:
            if listener.is_loopback:
                continue
            if not config.authenticates(listener):
                unknown.append(listener)
            elif listener.security_protocol == "SASL_PLAINTEXT":
                readable.append(listener)
        if not unknown:
            return cls([], [], readable)
        from kbroker.config.security.authorization import has_authorizer

        return cls([], unknown, readable) if has_authorizer(config) else cls(unknown, [], readable)

    def lines(self) -> list[str]:
        """A line for each kind, for people."""
        kinds = ((_OPEN, self.open), (_ANONYMOUS, self.anonymous), (_READABLE, self.readable))
        return [text % _told(listeners) for text, listeners in kinds if listeners]


def warn_of_exposure(config: BrokerConfig) -> None:
    """A warning in the log for each kind."""
    exposure = Exposure.of(config)
    if exposure.open:
        log.warning(_OPEN, _told(exposure.open))
    if exposure.anonymous:
        log.warning(_ANONYMOUS, _told(exposure.anonymous))
    if exposure.readable:
        log.warning(_READABLE, _told(exposure.readable))


def _told(listeners: Sequence[Listener]) -> str:
    return ", ".join(map(str, listeners))
