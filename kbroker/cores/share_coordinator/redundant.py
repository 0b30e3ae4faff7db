"""Offsets of ``__share_group_state`` below which nobody needs a record: they are deleted from time to time."""

from __future__ import annotations

from collections import OrderedDict

from kbroker.cores.share_state import SharePartitionKey


class NeededOffsets:
    """Latest snapshot of each share partition. Offsets only grow, so the first of them is the one written first."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[SharePartitionKey, int] = OrderedDict()
        self._end: int | None = None

    def on_snapshot(self, key: SharePartitionKey, offset: int) -> None:
        """A snapshot at ``offset`` takes the place of all earlier records of the share partition."""
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)
        self._end = offset + 1

    def on_tombstone(self, key: SharePartitionKey, offset: int) -> None:
        """The share partition is forgotten; nobody needs the tombstone once all before it are gone."""
        self._snapshots.pop(key, None)
        self._end = offset + 1

    def first_needed(self) -> int | None:
        """The first offset that is still needed; None if nothing has been written."""
        if self._snapshots:
            return next(iter(self._snapshots.values()))
        return self._end
