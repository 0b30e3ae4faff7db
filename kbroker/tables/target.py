"""Tables as a follower sees them, whichever format they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow

from kbroker.tables.plan import Kept
from kbroker.value_types import NamedTuple

DEAD_LETTERS: Final = "_dead_letters"
"""The end of the name of the table of dead letters, which is beside the table."""


DEAD_COLUMNS: Final = ["_partition", "_offset", "_timestamp", "reason"]
PAUSED: Final = "kbroker.paused"
"""The property of a paused table."""


class Conflict(Exception):
    """Somebody else has committed what this commit depends on: read the table again, and go on from there."""


class TableFacts(NamedTuple):
    """Figures of a table."""

    version: int
    rows: int
    files: int
    bytes: int
    dead_letters: int


class TableCommit(NamedTuple):
    """A commit of a table: of a follower, or of somebody else."""

    version: int
    at: int
    """In milliseconds since 1970."""
    what: str
    rows: int | None
    """Rows that were added, if it tells."""


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

    # --- For people --------------------------------------------------------------------------------------------------

    def pause(self, *, paused: bool) -> None:
        """Have nobody add rows, or let them again; ``Conflict``. A commit that is under way meanwhile is refused."""

    def is_paused(self) -> bool:
        """Whether the newest version says so; ``FatalError`` if the table is gone."""

    def commits(self, count: int) -> list[TableCommit]:
        """The last commits, the newest first, after `load`."""

    def dead_letters(self) -> Iterator[pyarrow.RecordBatch]:
        """The columns `DEAD_COLUMNS` of all dead letters, after `load`."""

    def note(self, text: str) -> None:
        """Write what a follower tells beside the table."""

    def noted(self) -> str | None:
        """Returns what the last follower has told; None without that."""

    def drop(self) -> int:
        """Remove the table and its dead letters with what they have had; how many files of others stay."""
