"""Answers that a rule may give."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Decision(Enum):
    """An authorizer's answer. The words are those of Kafka's ``AuthorizationResult``, and one more."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NOT_MINE = "not mine"
    """The cluster's own rules decide: ACLs for an authorizer, the quotas that are set for a quota callback, and the
    principal that Kafka would build for a principal builder."""


NOT_MINE: Final = Decision.NOT_MINE
"""`Decision.NOT_MINE`, which principal builders and quota callbacks answer, too."""
