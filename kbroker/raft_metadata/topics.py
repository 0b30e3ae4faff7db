"""Topics by name, before there is an image of them: legal names, internal topics (Kafka's ``Topic``), and the topics
and partitions that CreateTopics and CreatePartitions ask for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import NamedTuple

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that brokers create for themselves; clients may read them, and Metadata marks them."""

MAX_NAME_LENGTH = 249
"""A partition's directory is ``name-partition.<32 hex>-delete``, which must fit in 255 bytes."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """The reason, in Kafka's words, for which a name is illegal; None if it is legal."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def validate_topic_name(name: str) -> None:
    """``ApiError`` INVALID_TOPIC_EXCEPTION for an illegal name."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def has_collision_chars(name: str) -> bool:
    """Whether another topic's metrics could carry the same name (``.`` and ``_`` look alike there)."""
    return "." in name or "_" in name


def unify_collision_chars(name: str) -> str:
    """The form under which two colliding names are equal."""
    return name.replace(".", "_")


class NewTopic(NamedTuple):
    """A topic to create. -1 asks for the default; ``assignments`` are (partition, brokers) chosen by the client."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class NewPartitions(NamedTuple):
    """``total`` is the number of partitions that the topic is to have; ``assignments`` the new ones' brokers."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None
