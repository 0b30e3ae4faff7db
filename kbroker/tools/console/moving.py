"""A plan to move partitions: which brokers have which replicas afterwards. As few as possible move. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

_MOST: Final = 100_000
"""Numbers that a text may name."""


class CannotPlan(ValueError):
    """There is no such plan; the text says why."""


def parse_numbers(text: str, what: str) -> list[int]:
    """``0,2,5-7`` as numbers in order, each once. ``CannotPlan`` for another form."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 10) or (
            dash and not (last.isascii() and last.isdigit() and len(last) < 10)
        ):
            raise CannotPlan(f"{what} are numbers such as 0,2,5-7")
        begin, end = int(first), int(last) if dash else int(first)
        if end < begin or end - begin > _MOST:
            raise CannotPlan(f"{what}: {part[:30]} is no range")
        found.update(range(begin, end + 1))
        if len(found) > _MOST:
            raise CannotPlan(f"{what}: these are more than {_MOST:,}")
    return sorted(found)


def plan_moves(
    replicas: Mapping[int, Sequence[int]], racks: Mapping[int, str | None], factor: int
) -> dict[int, tuple[int, ...]]:
    """Partition -> its replicas on the brokers of ``racks``, the preferred leader first.

    Each partition gets ``factor`` replicas, each broker about as many, other racks first, and as many first places. A
    replica stays where it is unless its broker is not among them or has more than its share.
    """
    if factor < 1:
        raise CannotPlan("a partition has at least one replica")
    if factor > len(racks):
        raise CannotPlan(f"{factor} replicas need as many brokers, and {len(racks)} are chosen")
    share = -(-len(replicas) * factor // len(racks))
    held: Counter[int] = Counter(dict.fromkeys(racks, 0))
    kept: dict[int, list[int]] = {}
    for partition, current in sorted(replicas.items()):
        stay: list[int] = []
        for broker in current:
            if broker in racks and held[broker] < share and len(stay) < factor:
                stay.append(broker)
                held[broker] += 1
        kept[partition] = stay
    for chosen in kept.values():
        while len(chosen) < factor:
            used = {racks[broker] for broker in chosen if racks[broker] is not None}
            free = (broker for broker in racks if broker not in chosen)
            best = min(free, key=lambda broker: (held[broker] >= share, racks[broker] in used, held[broker], broker))
            chosen.append(best)
            held[best] += 1
    leaders = -(-len(replicas) // len(racks))
    first: Counter[int] = Counter(dict.fromkeys(racks, 0))
    for partition, chosen in kept.items():
        old = replicas[partition][0] if replicas[partition] else None
        if chosen[0] != old or first[chosen[0]] >= leaders:
            best = min(chosen, key=lambda broker: (first[broker], broker))
            chosen.remove(best)
            chosen.insert(0, best)
        first[chosen[0]] += 1
    return {partition: tuple(chosen) for partition, chosen in kept.items()}
