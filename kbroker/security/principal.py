"""Principals: who a connection belongs to (Kafka's ``KafkaPrincipal``)."""

from __future__ import annotations

from kbroker.value_types import NamedTuple

USER_TYPE = "User"


MAX_NAME_BYTES = 32767
"""Bytes of a type or a name: strings of the protocol and of metadata records have no more."""


def can_be_sent(name: str) -> bool:
    """Whether a type or a name fits into requests, answers and records: it is there, is UTF-8 and not too long."""
    try:
        return 0 < len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can name
        return False


class KafkaPrincipal(NamedTuple):
    """A type and a name: ``User:alice``. Two are equal if both are."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"

    @property
    def token_authenticated(self) -> bool:
        """Whether a delegation token stands for the principal: it may ask for no other token."""
        return False


class TokenPrincipal(KafkaPrincipal):
    """The owner of a delegation token, whoever came with the token. It equals the same principal without one."""

    __slots__ = ()

    @property
    def token_authenticated(self) -> bool:
        """True: see :class:`KafkaPrincipal`."""
        return True


def as_authenticated(principal: KafkaPrincipal, *, by_token: bool) -> KafkaPrincipal:
    """The same principal, authenticated by a delegation token or without one."""
    return (TokenPrincipal if by_token else KafkaPrincipal)(*principal)


ANONYMOUS = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""Everyone who does not say who they are."""


def parse_principal(text: str) -> KafkaPrincipal:
    """``Type:name``, where the name may have colons. ``ValueError`` for anything else (``SecurityUtils``)."""
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(kind, name)
