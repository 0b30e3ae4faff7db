"""Ports and names of this machine: the addresses that a host stands for, a port that is the same at all of them.

Empty, ``0.0.0.0`` and ``::`` each stand for all addresses of both families, as in Apache Kafka (Java's sockets). Each
address has a socket of its own, so that a client of IPv4 has an address of IPv4.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kbroker.errors import FatalError

Address = tuple[int, tuple[Any, ...]]
"""A family, and a socket's address of that family, whose port counts for nothing."""

ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")
"""Hosts that stand for all addresses of this machine."""

_ALL: Final[tuple[Address, ...]] = (socket.AF_INET, ("0.0.0.0", 0)), (socket.AF_INET6, ("::", 0))

_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""A machine, or a container, without addresses of a family: no failure if there are others."""

_TRIES: Final = 32
"""For a free port that is free at each of several addresses."""


def is_numeric(host: str) -> bool:
    """Whether nobody has to be asked for the addresses of a host."""
    return any(_is_address(family, host) for family in (socket.AF_INET, socket.AF_INET6)) or not host


def addresses_of(host: str) -> list[Address]:
    """All addresses to listen on; may ask a name server. ``OSError`` if there are none."""
    if host in ALL_ADDRESSES:
        return sorted(_ALL, key=lambda each: each[1][0] != (host or "0.0.0.0"))
    return _found(host)


def bind_all(host: str, addresses: list[Address], port: int) -> list[socket.socket]:
    """Bind a port (0 picks a free one) at each address that this machine has. ``FatalError`` if it cannot be had.

    Nobody can connect to it, nor take it, before ``listen``.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return _bind_each(addresses, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or not tries_left:
                raise cannot_listen(host, port, error) from error
    raise AssertionError


def listen(sockets: list[socket.socket], backlog: int) -> None:
    """Take connections from now on. ``FatalError`` when another process has come to listen there."""
    for sock in sockets:
        try:
            # Connections inherit it, and what is left of them must not keep the port from the next process.
            _let_port_be_shared(sock, True)
            sock.listen(backlog)
        except OSError as error:
            host, port, *_ = sock.getsockname()
            raise cannot_listen(host, port, error) from error


def canonical_host_name() -> str:
    """Returns the name of this host by which others find it (Java's ``getCanonicalHostName``); may ask a name server.

    It is the name of the host's first address, or that address if it has no name that leads back to it.
    """
    name = socket.gethostname()
    try:
        _, address = min(_found(name), key=lambda each: each[0] != socket.AF_INET)
    except OSError:
        return name  # nobody knows it: it may be known elsewhere
    try:
        canonical = socket.getnameinfo(address, socket.NI_NAMEREQD)[0]
        if address[0] in [each[1][0] for each in _found(canonical)]:
            return canonical
    except OSError:
        pass
    return str(address[0])


def cannot_listen(host: str, port: int, error: OSError) -> FatalError:
    """The error of a port that cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return FatalError(
            f"cannot listen on {host}:{port}: the port is in use{_used_by(port)}; --port or listeners name another"
        )
    return FatalError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def _used_by(port: int) -> str:
    """Returns who listens on a TCP port of this machine, as far as Linux tells this user, in words; else ""."""
    wanted = f"{port:04X}"
    try:
        sockets = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[1].endswith(f":{wanted}"):  # LISTEN
                    sockets.add(f"socket:[{fields[9]}]")
        for link in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
            with suppress(OSError):
                if os.readlink(link) in sockets:
                    process = link.parent.parent
                    return f" by process {process.name} ({(process / 'comm').read_text().strip()})"
    except OSError:
        pass
    return ""


def no_name(host: str, error: UnicodeError) -> OSError:
    """The error for a host name that Python's codec refuses: one with an empty part, or with one of more than 63 bytes.

    Properties and registrations may hold such a name, as in Apache Kafka, to which it is one more unknown host.
    """
    return OSError(f"{host!r} cannot be the name of a host: {error}")


def _found(host: str) -> list[Address]:
    try:
        # Numbers as bytes: for text Python imports what international names are written by.
        asked = host.encode() if is_numeric(host) else host
        found = socket.getaddrinfo(asked, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise no_name(host, error) from error
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


def _is_address(family: int, host: str) -> bool:
    try:
        socket.inet_pton(family, host)
    except OSError:
        return False
    return True


def _bind_each(addresses: list[Address], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for address in addresses:
            try:
                bound.append(_bind(address, bound[0].getsockname()[1] if bound else port))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = missing or error
        if missing is not None and not bound:
            raise missing
    except OSError:
        for sock in bound:
            sock.close()
        raise
    return bound


def _bind(address: Address, port: int) -> socket.socket:
    family, (host, _, *scope) = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _bind_alone(sock, (host, port, *scope))
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_alone(sock: socket.socket, target: tuple[Any, ...]) -> None:
    """Bind a port that no other process can bind from now on, though nobody listens there yet.

    Linux lets several sockets bind a port if all of them have SO_REUSEADDR and none listens. Without it, connections of
    an earlier process keep the port for a minute (TIME_WAIT): it is set for as long as the second try takes.
    """
    try:
        sock.bind(target)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        _let_port_be_shared(sock, True)
        sock.bind(target)
        _let_port_be_shared(sock, False)


def _let_port_be_shared(sock: socket.socket, yes: bool) -> None:
    if sys.platform != "win32":  # where it would take the port from whoever listens there
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, yes)
