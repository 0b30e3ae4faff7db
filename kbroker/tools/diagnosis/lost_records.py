"""The rules of lost records: a group gets nothing, though its offsets say that records wait. Pure.

The records are gone, never were there, or are where nobody leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kbroker.client.errors import ResponseError
from kbroker.errors import ErrorCode
from kbroker.tools.diagnosis.findings import Finding, Link, Severity
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

_CONTINUES: Final = "A consumer that comes there continues where its auto.offset.reset says: at the end by default"


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


def lost_records(
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, Limits],
    missing: Mapping[str, int] | None = None,
) -> list[Finding]:
    """Returns the reasons by partition or topic, those for which somebody has to do something first.

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


def _leaderless(where: str, logs: list[Log]) -> Finding:
    return _finding(
        Severity.ERROR,
        where,
        "there is no leader: nobody can read or write there.",
        "No replica that was in sync is alive; start the brokers that have one. The group continues there by itself.",
    )


def _finding(
    severity: Severity, where: str, text: str, advice: str, record: tuple[TopicPartition, int] | None = None
) -> Finding:
    """Returns a finding; ``record`` is the first one that is still there."""
    links = () if record is None else (Link("record", f"Look at record {record[1]:,}", *record[0], record[1]),)
    evidence = "ListOffsets tells where the logs begin and end, OffsetFetch where the group is."
    return Finding(severity, where, f"{where}: {text}", evidence, advice, "lost-records", links)


def _by_topic(logs: list[Log], tell: Callable[[str, list[Log]], Finding]) -> list[Finding]:
    """A reason for each topic; ``tell`` gets the words for its partitions."""
    by_topic: dict[str, list[Log]] = {}
    for log in logs:
        by_topic.setdefault(log.partition.topic, []).append(log)
    return [
        tell(str(those[0].partition) if len(those) == 1 else f"{topic}, {len(those)} partitions", those)
        for topic, those in by_topic.items()
    ]


def _missing(topic: str, members: int) -> Finding:
    subscribe = "1 member subscribes" if members == 1 else f"{members} members subscribe"
    return _finding(
        Severity.ERROR,
        topic,
        f"there is no such topic, and {subscribe} to it.",
        "It was deleted, is not made yet, or has another name. The offsets of a deleted topic are gone with it, and one"
        " that is made anew is read from where auto.offset.reset says.",
    )


def _gone(where: str, logs: list[Log]) -> Finding:
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
    return _finding(
        Severity.WARNING if is_one_each else Severity.ERROR,
        where,
        f"{gone} gone, and the group has not committed {them}{begins}.",
        f"{marker or 'Retention'}, or somebody, has deleted what was there. {_CONTINUES}, which leaves out what is"
        " still there, too. To have that, reset the offsets to the beginning.",
        (first.partition, first.start),
    )


def _beyond(where: str, logs: list[Log]) -> Finding:
    if len(logs) == 1:
        text = f"the group is at offset {logs[0].committed:,}, and the log ends at offset {logs[0].end:,}."
    else:
        text = "the group is at offsets beyond the ends of the logs."
    filled = next((log for log in logs if log.start < log.end), None)
    return _finding(
        Severity.ERROR,
        where,
        text,
        f"The topic was deleted and made anew, or its log was cut. {_CONTINUES}, which leaves out what is there. To"
        " have that, reset the offsets to the beginning.",
        None if filled is None else (filled.partition, filled.start),
    )


def _emptied(where: str, logs: list[Log]) -> Finding:
    # Markers of transactions count as lag, too: they may be all that was there.
    lag = sum(log.gone for log in logs)
    at = f"it is at offset {logs[0].committed:,}, and the log is empty up to {logs[0].end:,}"
    return _finding(
        Severity.WARNING,
        where,
        f"nothing is left to read, all that the group's lag of {lag:,} counts is gone:"
        f" {at if len(logs) == 1 else 'the logs are empty'}.",
        "Retention, or somebody, has deleted it. The group continues with the next record that is written there, and"
        " keeps its lag until it commits again.",
    )


def _empty(where: str, logs: list[Log]) -> Finding:
    end = max(log.end for log in logs)
    log = "the log is empty" if len(logs) == 1 else "the logs are empty"
    before = (
        "Nothing has been written there yet." if not end else "Retention, or somebody, has deleted all that was there."
    )
    return _finding(
        Severity.WARNING,
        where,
        f"there is nothing to read: {log}.",
        f"{before} The group has committed nothing, and waits for the next record.",
    )
