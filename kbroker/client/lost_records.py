"""The reasons why a group gets nothing although its offsets say that records wait: those are gone, never were, or are
where nobody leads. Pure.

The command and the console tell them in these words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kbroker.client.errors import ResponseError
from kbroker.client.troubles import ERROR, WARNING
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

_GOES_ON: Final = "A consumer that comes there goes on where its auto.offset.reset says: at the end by default"


class Loss(NamedTuple):
    """A reason, and what helps."""

    severity: str
    """``error`` where somebody has to do something, else ``warning``."""
    text: str
    advice: str
    partition: TopicPartition | None = None
    """The first of the partitions that it is about; None where no record can be looked at."""
    offset: int = -1
    """The first record that is still there."""


class Log(NamedTuple):
    """A partition's log, and the offset that a group has committed there; None before the first commit."""

    partition: TopicPartition
    committed: int | None
    start: int
    end: int

    @property
    def gone(self) -> int:
        """Offsets that are not in the log any more, from the committed one on."""
        return 0 if self.committed is None else max(min(self.start, self.end) - self.committed, 0)


Limits = tuple[int, int] | ResponseError | None
"""Start and end of a log; the reason why they are not known; None where nobody is to ask for reasons."""


def losses(
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, Limits],
    missing: Mapping[str, int] | None = None,
) -> list[Loss]:
    """The reasons by partition or topic, those for which somebody has to do something first.

    ``ranges``: the logs that the group has committed for or is assigned. ``missing``: the topics that do not exist,
    with the number of members that subscribe to each.
    """
    logs = [
        Log(each, committed.get(each), *limits) for each, limits in sorted(ranges.items()) if isinstance(limits, tuple)
    ]
    leaderless = [
        Log(each, committed.get(each), -1, -1)
        for each, limits in sorted(ranges.items())
        if isinstance(limits, ResponseError) and limits.code == ErrorCode.LEADER_NOT_AVAILABLE
    ]
    found = [_missing(topic, count) for topic, count in sorted((missing or {}).items())]
    found += _by_topic(leaderless, _leaderless)
    found += _by_topic([log for log in logs if log.gone and log.start < log.end], _gone)
    found += _by_topic([log for log in logs if log.committed is not None and log.committed > log.end], _beyond)
    found += _by_topic([log for log in logs if log.gone and log.start == log.end], _emptied)
    if not committed and len(logs) == len(ranges) and all(log.start == log.end for log in logs):
        found += _by_topic(logs, _empty)
    return found


def _leaderless(where: str, logs: list[Log]) -> Loss:
    return Loss(
        ERROR,
        f"{where}: there is no leader: nobody can read or write there.",
        "No replica that was in sync is alive; start the brokers that have one. The group goes on there by itself.",
    )


def _by_topic(logs: list[Log], tell: Callable[[str, list[Log]], Loss]) -> list[Loss]:
    """A reason for each topic; ``tell`` gets the words for its partitions."""
    by_topic: dict[str, list[Log]] = {}
    for log in logs:
        by_topic.setdefault(log.partition.topic, []).append(log)
    return [
        tell(str(those[0].partition) if len(those) == 1 else f"{topic}, {len(those)} partitions", those)
        for topic, those in by_topic.items()
    ]


def _missing(topic: str, members: int) -> Loss:
    subscribe = "1 member subscribes" if members == 1 else f"{members} members subscribe"
    return Loss(
        ERROR,
        f"{topic}: there is no such topic, and {subscribe} to it.",
        "It was deleted, is not made yet, or has another name. The offsets of a deleted topic are gone with it, and one"
        " that is made anew is read from where auto.offset.reset says.",
    )


def _gone(where: str, logs: list[Log]) -> Loss:
    # An offset may be that of a record, or of a transaction's marker; a compacted log has none at some.
    first = logs[0]
    is_one_each = all(log.gone == 1 for log in logs)
    if len(logs) > 1:
        gone, them, begins = f"{sum(log.gone for log in logs):,} offsets are", "them", ""
    elif is_one_each:
        gone, them, begins = f"offset {first.committed:,} is", "it", f": the log begins at offset {first.start:,}"
    else:
        gone, them = f"offsets {first.committed:,} to {first.start - 1:,} are", "them"
        begins = f": the log begins at offset {first.start:,}"
    marker = "It may be the marker of a transaction alone, which is no record. If not: retention" if is_one_each else ""
    return Loss(
        WARNING if is_one_each else ERROR,
        f"{where}: {gone} gone, and the group has not committed {them}{begins}.",
        f"{marker or 'Retention'}, or somebody, has deleted what was there. {_GOES_ON}, which leaves out what is still"
        " there, too. To have that, reset the offsets to the beginning.",
        first.partition,
        first.start,
    )


def _beyond(where: str, logs: list[Log]) -> Loss:
    if len(logs) == 1:
        text = f"{where}: the group stands at offset {logs[0].committed:,}, and the log ends at offset {logs[0].end:,}."
    else:
        text = f"{where}: the group stands at offsets beyond the ends of the logs."
    filled = next((log for log in logs if log.start < log.end), None)
    return Loss(
        ERROR,
        text,
        f"The topic was deleted and made anew, or its log was cut. {_GOES_ON}, which leaves out what is there. To have"
        " that, reset the offsets to the beginning.",
        None if filled is None else filled.partition,
        -1 if filled is None else filled.start,
    )


def _emptied(where: str, logs: list[Log]) -> Loss:
    # Markers of transactions count as lag, too: they may be all that was there.
    lag = sum(log.gone for log in logs)
    stands = f"it stands at offset {logs[0].committed:,}, and the log is empty up to {logs[0].end:,}"
    return Loss(
        WARNING,
        f"{where}: nothing is left to read, all that the group's lag of {lag:,} counts is gone:"
        f" {stands if len(logs) == 1 else 'the logs are empty'}.",
        "Retention, or somebody, has deleted it. The group goes on with the next record that is written there, and"
        " keeps its lag until it commits again.",
    )


def _empty(where: str, logs: list[Log]) -> Loss:
    end = max(log.end for log in logs)
    log = "the log is empty" if len(logs) == 1 else "the logs are empty"
    before = (
        "Nothing has been written there yet." if not end else "Retention, or somebody, has deleted all that was there."
    )
    return Loss(
        WARNING,
        f"{where}: there is nothing to read: {log}.",
        f"{before} The group has committed nothing, and waits for the next record.",
    )
