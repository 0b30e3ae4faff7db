"""The wait that doubles with each failure in a row (Kafka's ``ExponentialBackoff``, without its jitter)."""

from __future__ import annotations

from typing import Final

_MOST_DOUBLINGS: Final = 30
"""Larger powers are beyond every bound, and at some point beyond a float."""


def exponential_backoff(first: float, doublings: int, longest: float) -> float:
    """``first``, doubled so often; ``longest`` at the most. In the unit of the two."""
    return min(first * 2.0 ** min(doublings, _MOST_DOUBLINGS), longest)
