"""The network of a simulation: messages take time, get lost, come twice or in another order, and links are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kbroker.sim.world import EventQueue


@dataclass(slots=True)
class NetworkFaults:
    """The faults of the network. Times in milliseconds, probabilities from 0 to 1."""

    min_latency_ms: int = 1
    max_latency_ms: int = 10
    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.0
    """The share of messages that take up to ``max_delay_ms`` and are overtaken by later ones."""
    max_delay_ms: int = 1000

    @classmethod
    def random(cls, rng: random.Random) -> NetworkFaults:
        """A network that loses little or nothing, as most do."""
        bad = rng.random() < 0.5
        return cls(
            min_latency_ms=rng.choice((0, 1, 1, 5)),
            max_latency_ms=rng.choice((5, 10, 30, 80)),
            loss=rng.choice((0.0, 0.01, 0.05)) if bad else 0.0,
            duplication=rng.choice((0.0, 0.05)) if bad else 0.0,
            delay=rng.choice((0.0, 0.02)) if bad else 0.0,
        )


class SimNetwork:
    """Links between numbered nodes."""

    def __init__(self, clock: EventQueue[int], rng: random.Random, faults: NetworkFaults) -> None:
        self.faults = faults
        self._clock = clock
        self._rng = rng
        self._cut: set[tuple[int, int]] = set()

    def carry(self, source: int, destination: int, deliver: Callable[[], None]) -> None:
        """Bring something from one node to the other: ``deliver`` is called once, twice or never."""
        if (source, destination) in self._cut:
            return
        rng, faults = self._rng, self.faults
        if faults.loss and rng.random() < faults.loss:
            return
        copies = 2 if faults.duplication and rng.random() < faults.duplication else 1
        for _ in range(copies):
            latency = rng.randint(faults.min_latency_ms, faults.max_latency_ms)
            if faults.delay and rng.random() < faults.delay:
                latency += rng.randrange(faults.max_delay_ms)
            self._clock.call_at(self._clock.time + latency, self._arrive, source, destination, deliver)

    def _arrive(self, source: int, destination: int, deliver: Callable[[], None]) -> None:
        if (source, destination) not in self._cut:
            deliver()

    def cut(self, sources: Iterable[int], destinations: Iterable[int]) -> None:
        """Nothing gets from ``sources`` to ``destinations`` any more, not even what is on its way."""
        targets = list(destinations)
        self._cut |= {(a, b) for a in sources for b in targets if a != b}

    def cut_both_ways(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Two groups hear nothing of one another."""
        left, right = list(some), list(others)
        self.cut(left, right)
        self.cut(right, left)

    def heal(self) -> None:
        """All links work."""
        self._cut.clear()
