"""The items of a stream as a story: each exchange decoded, named, summed up, and put into its sequences."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.observe.explorer.decoded import MAX_DECODED, TOO_LARGE, Decoded, TopicNames, topic_ids_of
from kbroker.observe.explorer.exchange import Closed, ConnectionInfo, Exchange, Names, StreamStart
from kbroker.observe.explorer.lines import Item
from kbroker.observe.explorer.sequences import Sequences, Step
from kbroker.observe.explorer.summary import answer_summary, request_summary
from kbroker.wire.errors import WireError
from kbroker.wire.layout_text import rows
from kbroker.wire.layouts import DamagedFrame, Node, parse_frame


class Explanation(NamedTuple):
    """A sentence, and the proposal behind it."""

    text: str
    kip: int
    """0 if there is none."""

    def __str__(self) -> str:
        return f"{self.text[:-1]} (KIP-{self.kip})." if self.kip else self.text


@cache
def _tables() -> tuple[dict[str, Explanation], dict[str, Explanation]]:
    data = tomllib.loads(Path(__file__).with_name("explanations.toml").read_text(encoding="utf-8"))
    apis, errors = (
        {name: Explanation(row["text"], row.get("kip", 0)) for name, row in data[kind].items()}
        for kind in ("api", "error")
    )
    return apis, errors


def explain_api(name: str) -> Explanation:
    """The API of that name; ``KeyError`` if there is none."""
    return _tables()[0][name]


def explain_error(code: ErrorCode) -> Explanation:
    """An error as an answer; ``KeyError`` for NONE."""
    return _tables()[1][code.name]


LookUp = Callable[[Collection[str]], dict[str, str]]
"""Names of topics by the texts of their ids, as far as they are known. It may wait for a node, and raises nothing."""

MAX_ASKED: Final = 10_000
"""Ids of topics that are remembered because they have been asked for."""


class ExplainedExchange(NamedTuple):
    """An exchange as it is shown."""

    decoded: Decoded
    request: str
    answer: str
    topics: dict[str, list[int]]
    steps: list[Step]

    @property
    def summary(self) -> str:
        """The line."""
        return f"{self.request} -> {self.answer}"


class Filter(NamedTuple):
    """The exchanges that are shown; a text is a part of what it is compared with, None is not compared."""

    client: str | None = None
    apis: frozenset[str] = frozenset()
    """Names in lower case; empty for all."""
    topic: str | None = None
    group: str | None = None
    transaction: str | None = None
    internal: bool = False
    """Also what brokers and controllers ask one another."""
    errors: bool = False
    """Those alone that have an error in their answer, or no answer."""

    def shows(self, told: ExplainedExchange) -> bool:
        """Whether an exchange is one of them."""
        decoded = told.decoded
        return (
            (self.internal or not decoded.is_internal)
            and (not self.apis or decoded.name.lower() in self.apis)
            and (self.client is None or self.client in (decoded.client_id or ""))
            and (self.topic is None or self.topic in told.topics)
            and (self.group is None or self.group in decoded.groups)
            and (self.transaction is None or self.transaction in decoded.transactional_ids)
            and (not self.errors or bool(decoded.errors) or decoded.exchange.response is None)
        )


class Story:
    """Takes the items of one stream, or of several nodes in the order of their times."""

    def __init__(self) -> None:
        self.names = TopicNames()
        self.starts: dict[int, StreamStart] = {}
        """Node -> how its stream began the last time."""
        self._connections: dict[tuple[int, int], ConnectionInfo] = {}
        self._open_steps: dict[tuple[int, int], Step] = {}
        self._sequences = Sequences()
        self._asked: set[str] = set()

    def add(self, item: Item, look_up: LookUp | None = None) -> ExplainedExchange | None:
        """Take an item: an exchange is told, everything else is remembered.

        ``look_up`` is asked once for the name of each topic that is known by its id alone.
        """
        if isinstance(item, Exchange):
            decoded = self.decoded(item)
            ids = [] if look_up is None else self.to_ask(decoded)
            if look_up is not None and ids:
                self.names.known.update(look_up(ids))
            return self.tell(decoded)
        match item:
            case StreamStart():
                self._begin(item)
            case ConnectionInfo():
                self._connections[item.node, item.number] = item
            case Closed():
                self._connections.pop((item.node, item.number), None)
                self._open_steps.pop((item.node, item.number), None)
            case Names():
                self.names.known.update(item.topics)
        return None

    def _begin(self, start: StreamStart) -> None:
        """Forget the node's connections: those that are still there are told anew, and their ends were not heard."""
        self.starts[start.node] = start
        for known in (self._connections, self._open_steps):
            for key in [key for key in known if key[0] == start.node]:
                del known[key]

    def connections(self) -> list[ConnectionInfo]:
        """The connections that have been seen and are open, as far as is known."""
        return list(self._connections.values())

    def open_steps(self) -> dict[tuple[int, int], Step]:
        """(node, connection) -> the last step on it of a sequence that goes on."""
        return dict(self._open_steps)

    def decoded(self, exchange: Exchange) -> Decoded:
        """The exchange with its connection, as the first step of ``add``."""
        start = self.starts.get(exchange.node)
        connection = self._connections.get((exchange.node, exchange.connection))
        return Decoded(exchange, connection, "" if start is None else start.run)

    def to_ask(self, decoded: Decoded) -> list[str]:
        """The ids of topics that no name is known of, and that have not been asked for."""
        self.names.learn(decoded.response)
        ids = topic_ids_of(decoded.request) | topic_ids_of(decoded.response)
        unknown = ids - self.names.known.keys() - self._asked
        if len(self._asked) + len(unknown) > MAX_ASKED:
            self._asked.clear()
        self._asked |= unknown
        return sorted(unknown)

    def tell(self, decoded: Decoded) -> ExplainedExchange:
        """The exchange as it is shown, as the last step of ``add``."""
        self.names.learn(decoded.response)
        steps = self._sequences.add(decoded)
        self._note_steps((decoded.exchange.node, decoded.exchange.connection), steps)
        return ExplainedExchange(
            decoded,
            request_summary(decoded, self.names),
            answer_summary(decoded, self.names),
            decoded.topics(self.names),
            steps,
        )

    def _note_steps(self, key: tuple[int, int], steps: Iterable[Step]) -> None:
        for step in steps:
            if not step.is_end:
                if key in self._connections:
                    self._open_steps[key] = step
                continue
            for each in [each for each, known in self._open_steps.items() if known.number == step.number]:
                del self._open_steps[each]


def explanations(told: ExplainedExchange) -> list[str]:
    """Sentences about an exchange: its API, its errors, its sequences."""
    decoded = told.decoded
    sentences = [] if decoded.api is None else [f"{decoded.name}: {explain_api(decoded.name)}"]
    sentences += [f"{code.name}: {explain_error(code)}" for code in decoded.errors]
    return sentences + [
        f"{step.kind.capitalize()} of {step.subject}, step {step.place}: {step.text}." for step in told.steps
    ]


class Tree(NamedTuple):
    """A frame as fields with their places."""

    size: int
    missing: int
    """Bytes that were cut."""
    rows: list[dict[str, Any]]
    problem: str
    """The reason why it does not go on; empty if it is complete."""


def tree_of(told: ExplainedExchange, *, response: bool = False) -> Tree | None:
    """The fields of the request, or of the answer, each with its bytes; None if there is no answer."""
    return _tree(told.decoded, response=response)


def documents_of(items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """The exchanges of a saved stream, each with its fields beside their bytes, as objects for JSON."""
    story = Story()
    for item in items:
        told = story.add(item)
        if told is not None:
            yield document_of(told, trees=True)


def trees_of(decoded: Decoded) -> dict[str, Any]:
    """The fields of both beside their bytes, as an object for JSON."""
    trees = {"request_fields": _tree(decoded, response=False), "answer_fields": _tree(decoded, response=True)}
    return {name: None if tree is None else tree._asdict() for name, tree in trees.items()}


def _tree(decoded: Decoded, *, response: bool) -> Tree | None:
    frame = decoded.exchange.response if response else decoded.exchange.request
    if frame is None:
        return None
    if frame.size > MAX_DECODED:
        return Tree(frame.size, frame.size - frame.kept, [], TOO_LARGE)
    data = frame.filled()
    problem = ""
    try:
        nodes = parse_frame(
            data, response_to=(decoded.exchange.api_key, decoded.response_version) if response else None
        )
    except DamagedFrame as damage:
        nodes, problem = damage.nodes, str(damage)
    except (WireError, KeyError) as error:
        nodes, problem = [], str(error)
    if problem and not frame.is_whole:
        problem = "the rest was cut"
    return Tree(frame.size, frame.size - frame.kept, fields_of(nodes, data), problem)


def fields_of(nodes: list[Node], data: bytes) -> list[dict[str, Any]]:
    """The lines of a decoded frame, each beside its first bytes, as objects for JSON."""
    return [
        {
            "start": row.start,
            "stop": row.stop,
            "depth": row.depth,
            "text": row.text,
            "bytes": data[row.start : row.stop][:64].hex() if row.has_bytes else "",
        }
        for row in rows(nodes)
    ]


def document_of(told: ExplainedExchange, *, trees: bool = False) -> dict[str, Any]:
    """An exchange as an object for JSON; with ``trees`` also its fields beside their bytes."""
    decoded, exchange = told.decoded, told.decoded.exchange
    connection = decoded.connection
    document: dict[str, Any] = {
        "exchange": exchange.number,
        "node": exchange.node,
        "run": decoded.run,
        "at_ms": exchange.at_ms,
        "took_ms": exchange.took_ms if exchange.response is not None else None,
        "connection": exchange.connection,
        "peer": None if connection is None else connection.peer,
        "listener": None if connection is None else connection.listener,
        "principal": None if connection is None else connection.principal,
        "software": None if connection is None else connection.software,
        "client_id": decoded.client_id,
        "api": decoded.name,
        "api_key": exchange.api_key,
        "version": decoded.version,
        "correlation_id": decoded.correlation_id,
        "request": told.request,
        "answer": told.answer,
        "is_internal": decoded.is_internal,
        "is_redacted": exchange.is_redacted,
        "topics": told.topics,
        "groups": decoded.groups,
        "transactional_ids": decoded.transactional_ids,
        "errors": [code.name for code in decoded.errors],
        "explanations": explanations(told),
        "sequences": [
            {"number": step.number, "kind": step.kind, "subject": step.subject, "place": step.place}
            | {"text": step.text, "is_end": step.is_end}
            for step in told.steps
        ],
    }
    if trees:
        document |= trees_of(decoded)
    return document
