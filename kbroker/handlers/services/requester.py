"""The client that another node's controller is asked for, and what an Envelope says of it. Not an API itself."""

from __future__ import annotations

import socket
import struct
from typing import Protocol

from kbroker.security.principal import KafkaPrincipal, TokenPrincipal
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import RequestHeader
from kbroker.wire.messages.envelope import DefaultPrincipalData

_VERSION = struct.Struct(">h")
_UNKNOWN_ADDRESS = bytes(4)
_IPV4_IN_IPV6 = bytes(10) + b"\xff\xff"


class Requester(Protocol):
    """The client's request because of which a broker asks the controller: a ``RequestContext``."""

    @property
    def header(self) -> RequestHeader: ...

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def host(self) -> str: ...


def principal_bytes(principal: KafkaPrincipal) -> bytes:
    """A principal as ``DefaultKafkaPrincipalBuilder`` serializes it."""
    data = DefaultPrincipalData(
        type=principal.principal_type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return _VERSION.pack(0) + encode(data, 0)


def read_principal(data: bytes | None) -> KafkaPrincipal:
    """The reverse of :func:`principal_bytes`. ``WireError`` for anything else."""
    if data is None or len(data) < _VERSION.size:
        raise WireError("no principal")
    (version,) = _VERSION.unpack_from(data)
    if version != 0:
        raise WireError(f"a principal in version {version}")
    found, _ = decode(DefaultPrincipalData, 0, data, _VERSION.size)
    return (TokenPrincipal if found.token_authenticated else KafkaPrincipal)(found.type, found.name)


def address_bytes(host: str) -> bytes:
    """The 4 or 16 bytes of an address; 0.0.0.0 for what is none (a network of tests has names)."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
    return _UNKNOWN_ADDRESS


def read_address(data: bytes) -> str:
    """An address as text; ``WireError`` if it has neither 4 nor 16 bytes. IPv4 in IPv6 is IPv4, as in Java."""
    if len(data) == 16 and data.startswith(_IPV4_IN_IPV6):
        data = data[12:]
    if len(data) not in (4, 16):
        raise WireError(f"an address of {len(data)} bytes")
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
