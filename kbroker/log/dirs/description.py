"""Log directories as DescribeLogDirs tells of them."""

from __future__ import annotations

from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple


class LogDescription(NamedTuple):
    """A log in a log directory; one that ``is_future`` is on its way there, and lacks ``offset_lag`` records."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int = 0
    is_future: bool = False


class LogDirDescription(NamedTuple):
    """One log directory: its file system's bytes, the logs in it, and whether it gets no new ones."""

    path: str
    offline: bool
    total_bytes: int
    usable_bytes: int
    logs: list[LogDescription]
    cordoned: bool = False
