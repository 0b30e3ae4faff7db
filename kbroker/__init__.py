"""kbroker: Apache Kafka's broker, reimplemented in Python on Trio."""

from typing import TYPE_CHECKING, Any

from kbroker.version import __version__

if TYPE_CHECKING:
    from kbroker.client.topic_reader import read_topic, read_topic_batches

__all__ = ["__version__", "read_topic", "read_topic_batches"]


def __getattr__(name: str) -> Any:
    """The functions for users are imported when they are asked for: a node starts without them."""
    if name in ("read_topic", "read_topic_batches"):
        import importlib

        return getattr(importlib.import_module("kbroker.client.topic_reader"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
