"""Saved requests of a connection are sent to a broker, and its answers compared with the saved ones by their shape.

``kbroker watch --save FILE`` writes what a client asked; :func:`replay` asks it again, in a test of another version,
configuration or broker. Values that a broker makes up (ids of topics, members, producers, fetch sessions) are taken
from the new answers for the requests that follow.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from kbroker.client.cluster import parse_bootstrap
from kbroker.errors import ErrorCode
from kbroker.observe.explorer.decoded import Decoded, TopicNames
from kbroker.observe.explorer.exchange import Exchange, StreamStart, whole_frame
from kbroker.observe.explorer.lines import read_items
from kbroker.observe.explorer.summary import request_summary
from kbroker.wire.compiler import encode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import decode_request_header
from kbroker.wire.schema import Message

OF_THE_CLUSTER: Final = frozenset(
    {
        "api_keys",
        "brokers",
        "finalized_features",
        "isr_nodes",
        "node_endpoints",
        "offline_replicas",
        "replica_nodes",
        "supported_features",
    }
)
"""Fields that tell of the cluster and not of the request: they are not compared unless asked for."""

_MADE_UP: Final = frozenset(
    {"generation_id", "member_epoch", "member_id", "producer_epoch", "producer_id", "session_id", "topic_id"}
)
_NO_ANSWER: Final = "none is expected"


class ReplayError(Exception):
    """Saved requests cannot be sent again, or the broker does not answer; one readable line."""


class Replayed(NamedTuple):
    """A request that was sent again."""

    number: int
    """The exchange's in the file."""
    request: str
    """In a few words."""
    differences: list[str]
    """In what the new answer has another shape: ``topics[0].error_code: NONE, now NOT_CONTROLLER``."""


def replay(
    saved: str | Path,
    bootstrap: str,
    *,
    connection: int | None = None,
    ignore: Collection[str] = OF_THE_CLUSTER,
    timeout: float = 30.0,
) -> list[Replayed]:
    """Send saved requests to the first broker of ``bootstrap``, a plain listener; what became of each.

    Those of ``connection``, or of all in the file, each over a connection of its own, but one after the other: requests
    that wait for one another (two members who join a group) are not for that. Two answers have the same shape if they
    have the same errors, as many elements in each list, and null and empty fields in the same places; fields in
    ``ignore`` are not looked at. ``ReplayError`` if a request was cut or had secrets, and if there is no answer in
    ``timeout`` seconds.
    """
    chosen = _chosen(_read(saved), connection)
    exchanges = [each.exchange for each in chosen]
    changes: _Changes = {}
    done: list[Replayed] = []
    sockets: dict[tuple[int, str, int], socket.socket] = {}
    try:
        for run, exchange in chosen:
            key = exchange.node, run, exchange.connection
            if key not in sockets:
                sockets[key] = socket.create_connection(parse_bootstrap(bootstrap)[0], timeout)
            done.append(_again(sockets[key], exchange, changes, ignore))
    except OSError as error:
        reason = error.strerror or error or "no answer"
        raise ReplayError(f"{bootstrap}: {reason}, at exchange {exchanges[len(done)].number}") from error
    finally:
        for sock in sockets.values():
            sock.close()
    return done


_Changes: TypeAlias = dict[tuple[str, object], object]
"""(a field, what the broker had made up for it then) -> now."""


class _Saved(NamedTuple):
    """An exchange, and the run of its node: in another one the same connection number is another connection."""

    run: str
    exchange: Exchange


def _read(saved: str | Path) -> list[_Saved]:
    runs: dict[int, str] = {}
    found = []
    try:
        with open(saved, "rb") as lines:
            for item in read_items(lines):
                if isinstance(item, StreamStart):
                    runs[item.node] = item.run
                elif isinstance(item, Exchange):
                    found.append(_Saved(runs.get(item.node, ""), item))
        return found
    except OSError as error:
        raise ReplayError(f"cannot read {saved}: {error.strerror}") from None
    except WireError as error:
        raise ReplayError(f"{saved}: {error}") from None


def _chosen(exchanges: Sequence[_Saved], connection: int | None) -> list[_Saved]:
    chosen = [each for each in exchanges if connection is None or each.exchange.connection == connection]
    if not chosen:
        raise ReplayError("the file has no requests" + ("" if connection is None else f" of connection {connection}"))
    for _, each in chosen:
        if each.is_redacted or not each.request.is_whole:
            why = "secrets in it were overwritten" if each.is_redacted else "it was cut"
            raise ReplayError(f"exchange {each.number} cannot be sent again: {why}")
    return sorted(chosen, key=lambda each: (each.exchange.at_ms, each.exchange.number))


def _again(sock: socket.socket, exchange: Exchange, changes: _Changes, ignore: Collection[str]) -> Replayed:
    before = Decoded(exchange, None)
    what = request_summary(before, TopicNames())
    frame = _changed(exchange, before, changes)
    sock.sendall(struct.pack(">i", len(frame)) + frame)
    if exchange.response is None:
        differences = [] if exchange.end == _NO_ANSWER else ["there was no answer"]
        return Replayed(exchange.number, what, differences)
    answer = _receive(sock)
    now = Decoded(
        Exchange(
            exchange.node, exchange.number, exchange.connection, exchange.at_ms, whole_frame(frame), whole_frame(answer)
        ),
        None,
    )
    if before.response is None or now.response is None:
        same = before.problem == now.problem
        return Replayed(exchange.number, what, [] if same else [f"{before.problem or 'an answer'}, now {now.problem}"])
    _learn(before.response, now.response, changes)
    return Replayed(exchange.number, what, list(_differences(before.response, now.response, "", ignore)))


def _receive(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ReplayError("the broker has closed the connection")
        data += piece
    return bytes(data)


def _changed(exchange: Exchange, decoded: Decoded, changes: _Changes) -> bytes:
    """The request, with the new values for those that a broker had made up."""
    frame = exchange.request.filled()
    if decoded.request is None or not changes or not _put(decoded.request, changes):
        return frame
    _, offset = decode_request_header(frame)
    return frame[:offset] + encode(decoded.request, decoded.version)


def _put(message: Message, changes: _Changes) -> bool:
    found = False
    for slot in type(message).__slots__:
        value = getattr(message, slot)
        if isinstance(value, Message):
            found = _put(value, changes) or found
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    found = _put(each, changes) or found
        elif slot in _MADE_UP and (slot, value) in changes:
            setattr(message, slot, changes[slot, value])
            found = True
    return found


def _learn(before: Message, now: Message, changes: _Changes) -> None:
    for slot in type(before).__slots__:
        old, new = getattr(before, slot), getattr(now, slot)
        if isinstance(old, Message) and isinstance(new, Message):
            _learn(old, new, changes)
        elif isinstance(old, list) and isinstance(new, list):
            for one, other in _pairs(old, new):
                if isinstance(one, Message):
                    _learn(one, other, changes)
        elif slot in _MADE_UP and old != new and old is not None:
            changes[slot, old] = new


def _pairs(before: list[Any], now: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Elements that belong together: by name where they have one, else by position."""
    if before and all(getattr(each, "name", None) for each in [*before, *now]):
        by_name = {each.name: each for each in now}
        return ((each, by_name[each.name]) for each in before if each.name in by_name)
    return zip(before, now, strict=False)


def _differences(before: Any, now: Any, path: str, ignore: Collection[str]) -> Iterator[str]:
    for slot in type(before).__slots__:
        if slot in ignore:
            continue
        old, new = getattr(before, slot), getattr(now, slot)
        place = f"{path}{slot}"
        if slot.endswith("error_code"):
            if old != new:
                yield f"{place}: {ErrorCode.of(old).name}, now {ErrorCode.of(new).name}"
        elif (old is None) != (new is None):
            yield f"{place}: {'null' if old is None else 'there'}, now {'null' if new is None else 'there'}"
        elif isinstance(old, Message):
            yield from _differences(old, new, f"{place}.", ignore)
        elif isinstance(old, list):
            if len(old) != len(new):
                yield f"{place}: {len(old)} elements, now {len(new)}"
            elif old and isinstance(old[0], Message):
                for index, (one, other) in enumerate(_pairs(old, new)):
                    yield from _differences(one, other, f"{place}[{index}].", ignore)
        elif isinstance(old, bytes | memoryview) and (len(old) == 0) != (len(new) == 0):
            yield f"{place}: {len(old)} bytes, now {len(new)}"
