"""Listeners that others reach over the network, and that ask too little of them: told at the start, and by ``info``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from kbroker.config import BrokerConfig, Listener

log = logging.getLogger("kbroker")

_OPEN = "NO AUTHENTICATION on %s: whoever reaches it over the network can read, change and delete everything"
_ANONYMOUS = "NO AUTHENTICATION on %s: whoever reaches it over the network may do what User:ANONYMOUS may"
_PASSWORDS = "NO ENCRYPTION on %s: whoever can see the network's traffic reads passwords and records"
_READABLE = "NO ENCRYPTION on %s: whoever can see the network's traffic reads records, and can try to guess passwords"
_UNRULED = "NO AUTHORIZER for %s: whoever logs in can read, change and delete everything, other users too"
_GENEROUS = "allow.everyone.if.no.acl.found is true: whoever reaches %s may use whatever no ACL is for"


class Exposure(NamedTuple):
    """Listeners beyond the loopback interface that lack something."""

    open: Sequence[Listener] = ()
    """Nobody has to say who they are, and there is no authorizer."""
    anonymous: Sequence[Listener] = ()
    """Nobody has to say who they are; an authorizer decides what they may do nevertheless."""
    passwords: Sequence[Listener] = ()
    """Clients send passwords, or tokens as good as them, in the clear: SASL_PLAINTEXT with PLAIN or OAUTHBEARER."""
    readable: Sequence[Listener] = ()
    """Clients say who they are in the clear, but send no secret: SASL_PLAINTEXT with other mechanisms alone."""
    unruled: Sequence[Listener] = ()
    """Clients say who they are, and nothing decides what they may do."""
    generous: Sequence[Listener] = ()
    """The authorizer allows what it has no rule for."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Exposure:
        """The exposed listeners of a node's configuration."""
        reached = [listener for listener in config.listeners if not listener.is_loopback]
        if not reached:
            return cls()
        from kbroker.config.security.authorization import allows_everyone, has_authorizer

        known = [listener for listener in reached if config.authenticates(listener)]
        unknown = [listener for listener in reached if listener not in known]
        clear = [listener for listener in known if listener.security_protocol == "SASL_PLAINTEXT"]
        passwords = [listener for listener in clear if _takes_passwords(config, listener)]
        readable = [listener for listener in clear if listener not in passwords]
        if not has_authorizer(config):
            return cls(open=unknown, passwords=passwords, readable=readable, unruled=known)
        generous = reached if allows_everyone(config) else []
        return cls(anonymous=unknown, passwords=passwords, readable=readable, generous=generous)

    def lines(self) -> list[str]:
        """A line for each kind, for people."""
        texts = (_OPEN, _ANONYMOUS, _PASSWORDS, _READABLE, _UNRULED, _GENEROUS)
        return [text % _told(listeners) for text, listeners in zip(texts, self, strict=True) if listeners]


def _takes_passwords(config: BrokerConfig, listener: Listener) -> bool:
    """Whether a client may send what lets others in as itself: the password of PLAIN, the token of OAUTHBEARER."""
    mechanisms = config.security(listener.name)["sasl.enabled.mechanisms"] or ()
    return not {"PLAIN", "OAUTHBEARER"}.isdisjoint(mechanism.strip() for mechanism in mechanisms)


def warn_of_exposure(config: BrokerConfig) -> None:
    """A warning in the log for each kind."""
    exposure = Exposure.of(config)
    if exposure.open:
        log.warning(_OPEN, _told(exposure.open))
    if exposure.anonymous:
        log.warning(_ANONYMOUS, _told(exposure.anonymous))
    if exposure.passwords:
        log.warning(_PASSWORDS, _told(exposure.passwords))
    if exposure.readable:
        log.warning(_READABLE, _told(exposure.readable))
    if exposure.unruled:
        log.warning(_UNRULED, _told(exposure.unruled))
    if exposure.generous:
        log.warning(_GENEROUS, _told(exposure.generous))


def _told(listeners: Sequence[Listener]) -> str:
    return ", ".join(map(str, listeners))
