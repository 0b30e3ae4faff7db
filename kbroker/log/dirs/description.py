"""Log directories as DescribeLogDirs tells of them."""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple


class LogDescription(NamedTuple):
    """A log in a log directory; one that ``is_future`` is on its way there, and lacks ``offset_lag`` records."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int = 0
    is_future: bool = False


class LogDirDescription(NamedTuple):
    """A log directory: its file system's bytes, the logs in it, and whether it gets no new ones.

    ``logs`` are described as they are read, once: a node with 100,000 of them serves others in between.
    """

    path: str
    offline: bool
    total_bytes: int
    usable_bytes: int
    logs: Iterable[LogDescription]
    cordoned: bool = False
