"""The server-side assignors that a node's file names: Kafka's own, and callables in Python.

A group chooses an assignor by its name. That of a callable is the last part of ``python:MODULE:NAME``, so that a
controller, which loads no assignors, knows it as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kbroker.config.broker import BrokerProperties
from kbroker.errors import FatalError

CONSUMER_ASSIGNORS: Final = "group.consumer.assignors"
SHARE_ASSIGNORS: Final = "group.share.assignors"
STREAMS_ASSIGNORS: Final = "group.streams.assignors"

_OF_GROUPS: Final = "org.apache.kafka.coordinator.group"

BUILT_IN: Final[Mapping[str, Mapping[str, str]]] = {
    CONSUMER_ASSIGNORS: {
        "uniform": f"{_OF_GROUPS}.assignor.UniformAssignor",
        "range": f"{_OF_GROUPS}.assignor.RangeAssignor",
    },
    SHARE_ASSIGNORS: {"simple": f"{_OF_GROUPS}.assignor.SimpleAssignor"},
    STREAMS_ASSIGNORS: {"sticky": f"{_OF_GROUPS}.streams.assignor.StickyTaskAssignor"},
}
"""By property: Kafka's own assignors, and the Java classes that may stand for their names."""

_PYTHON = "python:"


def names_callable(text: str) -> bool:
    """Whether an entry names a callable in Python."""
    return text.startswith(_PYTHON)


def assignor_name(text: str) -> str:
    """The name by which groups choose the assignor of an entry."""
    if names_callable(text):
        return text.rpartition(":")[2].rpartition(".")[2]
    for known in BUILT_IN.values():
        for name, java_class in known.items():
            if text == java_class:
                return name
    return text


def assignor_names(texts: Iterable[str]) -> tuple[str, ...]:
    """The names of the assignors in a property's entries; the first is the default."""
    return tuple(map(assignor_name, texts))


def all_assignors(config: BrokerProperties) -> Iterator[str]:
    """The entries of all three properties."""
    for property_name in BUILT_IN:
        yield from config.values[property_name]


def check_assignors(config: BrokerProperties) -> None:
    """:class:`FatalError` for an entry that stands for no assignor, or for another one's name (KIP-848, KIP-1357)."""
    for property_name, known in BUILT_IN.items():
        texts = config.values[property_name]
        seen = set()
        for text in texts:
            name = assignor_name(text)
            if names_callable(text):
                from kbroker.config.security.rules import check_name

                check_name(property_name, text)
                if name in known:
                    raise FatalError(f"{property_name}: {text}: the name {name} is that of an assignor of Kafka's")
            elif name not in known:
                raise FatalError(
                    f"{property_name}: there is no assignor {text!r}, only {' and '.join(known)},"
                    " and callables in Python: python:MODULE:NAME"
                )
            if name in seen:
                raise FatalError(f"{property_name}: {text}: there is another assignor of the name {name}")
            seen.add(name)
    if len(config.values[SHARE_ASSIGNORS]) != 1:
        raise FatalError(f"{SHARE_ASSIGNORS}: share groups have one assignor, and this is not one")
