"""Sockets of a broker of this process, which a process that is forked from it does not keep.

A test may fork (``multiprocessing`` does, by default, before Python 3.14). Its child has all descriptors as well: what
the broker closes would stay open for its clients, and its ports taken, until the child ends.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Collection
from functools import cache
from typing import Protocol

_DESCRIPTORS = "/dev/fd"


class HasPorts(Protocol):
    """A broker of this process."""

    @property
    def own_ports(self) -> Collection[int]:
        """The ports that it listens at."""


_brokers: weakref.WeakSet[HasPorts] = weakref.WeakSet()


def keep_from_children(broker: HasPorts) -> None:
    """Have no process that is forked from now on keep the sockets of a broker, as long as there is one."""
    _brokers.add(broker)
    _register()


@cache
def _register() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    ports = {port for broker in _brokers for port in broker.own_ports}
    _brokers.clear()
    if not ports:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir(_DESCRIPTORS)):
        if _port_of(number) in ports:
            os.dup2(nothing, number, inheritable=False)  # a free number would be another's, and closed once more
    os.close(nothing)


def _port_of(number: int) -> int | None:
    """The port of this machine that a descriptor is a socket of, if it is one."""
    try:
        own = socket.socket(fileno=number)
    except OSError:
        return None
    try:
        name = own.getsockname()
    except OSError:  # one that is shut down, on some systems
        return None
    finally:
        own.detach()  # it is whoever opened it who closes it
    return name[1] if isinstance(name, tuple) and own.type == socket.SOCK_STREAM else None
