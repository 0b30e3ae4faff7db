"""Tables as a follower sees them, whichever format they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept
from kbroker.value_types import NamedTuple

DEAD_LETTERS: Final = "_dead_letters"
"""The end of the name of the table of dead letters, which is beside the table."""


class Conflict(Exception):
    """Somebody else has committed what this commit depends on: read the table again, and go on from there."""


class StoreAway(FatalError):
    """The store or the catalog of a table did not answer, or said that it cannot now: it may later.

    Whether it has done what it was asked is not known: read the table again, and go on from there.
    """


class TableFacts(NamedTuple):
    """Figures of a table."""

    version: int
    rows: int
    files: int
    bytes: int
    dead_letters: int


def furthest(known: Mapping[int, int], positions: Mapping[int, int]) -> dict[int, int]:
    """The positions of dead letters after a commit: those that are ahead of the table stay so until it gets there."""
    return {partition: max(end, known.get(partition, 0)) for partition, end in positions.items()}


class Target(Protocol):
    """A table and its dead letters. What is added goes on from the version that `load` has read."""

    where: str

    def load(self, partitions: Iterable[int]) -> Kept | None:
        """Read the newest version; None without a table."""

    def schema(self) -> pyarrow.Schema:
        """The columns."""

    def dead_offsets(self, positions: Mapping[int, int]) -> set[tuple[int, int]]:
        """Partition and offset of the dead letters that are ahead of the table."""

    def create(self, kept: Kept, schema: pyarrow.Schema) -> None:
        """Make the table; ``Conflict``."""

    def adopt(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """Go on with another topic of the same name; ``Conflict``."""

    def add_dead(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add dead letters; ``Conflict``."""

    def topic(self) -> str | None:
        """The topic of the table; None without a table."""

    def facts(self) -> TableFacts:
        """The figures of the version that `load` has read."""

    def maintain(self, retention_hours: int | None = None) -> dict[str, int]:
        """Merge small files and remove old ones, as far as the library can; what was done."""

    def add(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add rows and the next offset of each partition that has moved, together; ``Conflict``."""
