"""Damages a file as disks and people do. Each choice is made by a generator with a seed, and so can be made again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

PAGE = 4096
WAYS = ("flipped bit", "zeroed page", "cut", "emptied", "removed", "garbage at the end", "zeros at the end", "doubled")
METADATA = "__cluster_metadata-0"

KINDS: Mapping[str, tuple[int, str]] = {
    "log": (40, r"(plain|txn)-\d+/\d+\.log"),
    "log of offsets": (10, r"__consumer_offsets-\d+/\d+\.log"),
    "log of transactions": (4, r"__transaction_state-\d+/\d+\.log"),
    "metadata log": (8, rf"{METADATA}/\d+\.log"),
    "metadata snapshot": (4, rf"{METADATA}/.*\.checkpoint"),
    "quorum-state": (4, rf"{METADATA}/quorum-state|quorum-promises"),
    "index": (6, r".*\.(time|txn)?index"),
    "producer snapshot": (4, r".*\.snapshot"),
    "leader epochs": (4, r".*/leader-epoch-checkpoint"),
    "partition.metadata": (5, r".*/(partition\.metadata|topic-id)"),
    "checkpoint": (5, r"[a-z-]+-checkpoint"),
    "meta.properties": (2, r"meta\.properties"),
    "bootstrap.checkpoint": (2, r"bootstrap\.checkpoint"),
    "clean-shutdown file": (2, r"\.kafka_cleanshutdown"),
}
"""Kind of file -> how often it is chosen, and the pattern of its path in a log directory."""
OF_PARTITIONS = (
    "log",
    "log of offsets",
    "log of transactions",
    "producer snapshot",
    "leader epochs",
    "partition.metadata",
)
"""Kinds of which the files of two replicas are damaged, too."""


def kind_of(path: str) -> str | None:
    """Returns the kind of the file at `path` in a log directory, None for a file that is not damaged."""
    return next((kind for kind, (_, pattern) in KINDS.items() if re.fullmatch(pattern, path)), None)


def files_of(directory: Path) -> dict[str, list[str]]:
    """Returns the paths in a log directory by their kind, sorted."""
    found: dict[str, list[str]] = {}
    for path in sorted(str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()):
        if kind := kind_of(path):
            found.setdefault(kind, []).append(path)
    return found


def snapshot_end(directory: Path) -> int:
    """Returns the end of the newest metadata snapshot in a log directory."""
    paths = files_of(directory).get("metadata snapshot", ())
    return max((int(path.rsplit("/", 1)[1].split("-")[0]) for path in paths), default=0)


def choose_kind(rng: Random, kinds: Sequence[str]) -> str:
    """Choose one of `kinds`, each as often as `KINDS` says."""
    return rng.choices(kinds, [KINDS[kind][0] for kind in kinds])[0]


@dataclass(frozen=True)
class Damage:
    """The damage of a file: the bytes of `before` in the ranges `lost` are gone or wrong. `after` is None: removed."""

    node: int
    path: str
    way: str
    before: bytes
    after: bytes | None
    lost: tuple[tuple[int, int], ...]

    @property
    def kind(self) -> str:
        """The kind of the file."""
        return kind_of(self.path) or ""

    def apply(self, directory: Path) -> None:
        """Damage the file in a log directory."""
        if self.after is None:
            (directory / self.path).unlink()
        else:
            (directory / self.path).write_bytes(self.after)

    def __str__(self) -> str:
        where = ", ".join(f"bytes {start} to {end}" for start, end in self.lost) or "nothing that was there"
        return f"node {self.node}, {self.path} ({len(self.before)} bytes): {self.way}, {where}"


def damage(rng: Random, way: str, node: int, path: str, before: bytes) -> Damage:
    """Damage the bytes of a file in this `way`, at a place that `rng` chooses. An empty file has few ways."""
    place, size = rng.random(), len(before)
    at = int(place * size)
    noise = Random(rng.random())
    if not before and way in ("flipped bit", "zeroed page", "cut", "emptied", "doubled"):
        way = "garbage at the end"
    after: bytes | None
    lost: tuple[tuple[int, int], ...] = ()
    if way == "flipped bit":
        after = before[:at] + bytes([before[at] ^ 1 << noise.randrange(8)]) + before[at + 1 :]
        lost = ((at, at + 1),)
    elif way == "zeroed page":
        start = at // PAGE * PAGE
        end = min(start + PAGE, size)
        after, lost = before[:start] + bytes(end - start) + before[end:], ((start, end),)
    elif way == "cut":
        after, lost = before[:at], ((at, size),)
    elif way == "emptied":
        after, lost = b"", ((0, size),)
    elif way == "removed":
        after, lost = None, ((0, size),)
    elif way == "garbage at the end":
        after = before + noise.randbytes(1 + noise.randrange(5000))
    elif way == "zeros at the end":
        after = before + bytes(1 + noise.randrange(2 * PAGE))
    else:
        after = before + before
    return Damage(node, path, way, before, after, lost)
