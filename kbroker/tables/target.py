"""Tables as a follower sees them, whichever format they have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept
from kbroker.value_types import NamedTuple

DEAD_LETTERS: Final = "_dead_letters"
"""The end of the name of the table of dead letters, which is beside the table."""


DEAD_COLUMNS: Final = ["_partition", "_offset", "_timestamp", "reason"]
PAUSED: Final = "kbroker.paused"
"""The property of a paused table."""
NOTES: Final = "_kbroker"
"""The directory where followers tell of themselves: readers, and who removes files of nobody, leave out such names."""
NOTE: Final = re.compile(rf"(?:{NOTES}/)?follower(-[^/]+)?\.json")
"""A follower's file there; followers of 0.2.0 shared one."""


def checked_file(path: str) -> str:
    """Returns the file of which a file has the checksums, as Spark writes them in a directory; else the path itself."""
    return re.sub(r"(^|/)\.([^/]+)\.crc$", r"\1\2", path)


ROW_GROUP: Final = 32_768
"""Rows that a file has together: they are in memory once more while they are written."""


class Conflict(Exception):
    """Somebody else has committed what this commit depends on: read the table again, and go on from there."""


class StoreAway(FatalError):
    """The store or the catalog of a table did not answer, or said that it cannot now: it may later.

    Whether it has done what it was asked is not known: read the table again, and go on from there.
    """


class Merging(NamedTuple):
    """When small files are merged. A table is left with fewer than ``fewest`` in each of its partitions."""

    fewest: int = 16
    """Files that are not worth it."""
    size: int = 64 << 20
    """Bytes of a file that is large enough."""
    budget: int = 128 << 20
    """Bytes that are read at once, while records wait."""


def size_to_merge(sizes: Sequence[int], merging: Merging) -> int:
    """Returns the size below which the files of a partition are merged now; 0 if there are few, or all are too much.

    What is nearly as large as that has been merged before, and is no reason to do it again.
    """
    size = merging.size
    while len([each for each in sizes if each < size * 3 // 4]) >= merging.fewest:
        if sum(each for each in sizes if each < size) <= merging.budget:
            return size
        size //= 4
    return 0


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Returns what was done to several tables."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


class Traits(NamedTuple):
    """A format of tables, as far as columns need it. ``promotes``: int may become long, and so on."""

    has_time: bool
    promotes: bool
    taken: tuple[str, ...] = ()
    """Names that no field may have."""
    joins: bool = False
    """Whether all names differ also when those of fields within others are joined to theirs by dots."""


NO_TRAITS: Final = Traits(has_time=False, promotes=False)


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
    traits: Traits

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

    def merge_files(self, merging: Merging) -> int:
        """Merge small files, if there are many; their number. Nothing is done if another's commit comes before.

        Dead letters have files, too, here and below.
        """

    def clean(self, keep_hours: int | None = None) -> dict[str, int]:
        """Remove what no version of ``keep_hours`` needs; what was done."""

    def maintain(self, keep_hours: int | None = None) -> dict[str, int]:
        """Merge all small files and clean; what was done."""

    def upsert(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Write and delete the rows of keys, as the rows' column ``CHANGE`` says, as `add` adds; ``Conflict``."""

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

    def note(self, name: str, text: str | None) -> None:
        """Write what a follower tells beside the table, in a file of its own; None removes the file."""

    def noted(self) -> dict[str, str]:
        """Returns what followers have told, by the names of their files."""

    def drop(self) -> int:
        """Remove the table and its dead letters with what they have had; how many files of others stay."""
