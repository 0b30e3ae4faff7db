"""Which topic names are legal, and which topics belong to the broker itself."""

from __future__ import annotations

import re

from kbroker.errors import ApiError, ErrorCode

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics; clients may read them, and Metadata marks them."""

MAX_NAME_LENGTH = 249
"""A partition's directory is ``name-partition.<32 hex>-delete``, which must fit in 255 bytes."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """Why a name is illegal, in Kafka's words, or None."""
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
