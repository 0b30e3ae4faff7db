"""Small differences: slices of seconds with an addition and without it in turn, compared within their round alone.

A machine is hardly the same a minute later. So each round has three slices, one after the other in changing order: with
the addition, without it, and a second one without it. The first and the second make a pair; the third and the second
make one of the control, whose spread is that of the measurement itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle, islice


class Turn(Enum):
    """The kind of a slice."""

    WITH = "with"
    WITHOUT = "without"
    CONTROL = "control"
    """Without it once more."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The work that was done in a time, and the processor time that the server took for it. Times are in seconds."""

    work: float
    """Requests, or records."""
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Work in a second."""
        return self.work / self.seconds

    @property
    def cost(self) -> float:
        """Seconds of a processor for one piece of work."""
        return self.cpu / self.work


Round = Mapping[Turn, Slice]


_ORDERS = (
    (Turn.WITHOUT, Turn.CONTROL, Turn.WITH),
    (Turn.WITH, Turn.WITHOUT, Turn.CONTROL),
    (Turn.CONTROL, Turn.WITH, Turn.WITHOUT),
    (Turn.CONTROL, Turn.WITHOUT, Turn.WITH),
    (Turn.WITH, Turn.CONTROL, Turn.WITHOUT),
    (Turn.WITHOUT, Turn.WITH, Turn.CONTROL),
)
"""All orders, so placed that a slice with the addition follows where a round ends with one."""


def turns(rounds: int) -> Iterator[tuple[Turn, ...]]:
    """The order of the slices of each round: what grows or wears off meanwhile favours no kind.

    In six rounds each kind has each place twice, and a slice with the addition, which may have effects for a moment
    longer, comes as often before one without it as before one of the control.
    """
    return islice(cycle(_ORDERS), rounds)


def compared(rounds: Sequence[Round]) -> dict[str, float]:
    """Figures of two rounds or more: how much more processor time, and how much less work, in percent of those without.

    Each is the median of the pairs, with its quartiles; ``control_`` stands before those of the control. The ``error``
    is as far as a median may be off, at 95%: by the wider quartiles of the two, and the root of the number of pairs
    (the notches of McGill, Tukey and Larsen, 1978). It counts pairs as independent of each other.
    """
    figures: dict[str, float] = {}
    for prefix, turn in (("", Turn.WITH), ("control_", Turn.CONTROL)):
        figures |= _spread(f"{prefix}cpu_more", [_percent(each, turn, lambda slice: slice.cost) for each in rounds])
        figures |= _spread(f"{prefix}rate_less", [-_percent(each, turn, lambda slice: slice.rate) for each in rounds])
    for name in ("cpu_more", "rate_less"):
        widths = (
            figures[f"{each}_high_percent"] - figures[f"{each}_low_percent"] for each in (name, f"control_{name}")
        )
        figures[f"{name}_error_percent"] = 1.57 * max(widths) / math.sqrt(len(rounds))
    return figures | {"pairs": len(rounds)}


def _percent(round: Round, turn: Turn, figure: Callable[[Slice], float]) -> float:
    """The growth of a figure from the slice without the addition to another of the round, in percent."""
    return (figure(round[turn]) / figure(round[Turn.WITHOUT]) - 1) * 100


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """The median of values, and the quartiles beside it."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {f"{name}_percent": middle, f"{name}_low_percent": low, f"{name}_high_percent": high}
