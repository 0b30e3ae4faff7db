"""The marker that ends a transaction in a partition."""

from __future__ import annotations

from kbroker.value_types import NamedTuple


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, as its coordinator decided it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    """A marker of an older coordinator is refused."""
    transaction_version: int
    """The rule for judging the epoch: from 2 on each transaction has an epoch of its own."""
