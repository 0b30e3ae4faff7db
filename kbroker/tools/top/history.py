"""Rates and lags, from one snapshot of a cluster to the next. Pure: ``history.after(snapshot)`` is the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from kbroker.base.rates import Sample, rates_after, rates_of_counters
from kbroker.client.groups import MEMBERLESS
from kbroker.tools.diagnosis.group_watch import Judged
from kbroker.tools.top.facts import Offsets, Scrape, Snapshot
from kbroker.types import TopicPartition

K = TypeVar("K")
T = TypeVar("T")

HISTORY: Final = 64
"""Looks at the end of a partition that are remembered, to tell when a record was written."""

MAX_HISTORIES: Final = 20_000
"""Partitions of groups that have a history."""

MAX_TIMES: Final = 8
"""Records whose time is asked for in one look."""


class Age(NamedTuple):
    """The time that a record has waited, in seconds; ``exact`` is false where it is longer than that."""

    seconds: float
    exact: bool = True


class GroupLag(NamedTuple):
    """The part that a group has not committed: records, and how long the oldest has waited. None: nobody can tell."""

    records: int | None
    age: Age | None
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class ClusterHistory:
    """All that is known, and how fast it changes. Rates are for one second."""

    snapshot: Snapshot
    ends: Mapping[TopicPartition, Sample] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, Sample] = field(default_factory=dict)
    records_in: Mapping[TopicPartition, float] = field(default_factory=dict)
    log_growth: Mapping[TopicPartition, float] = field(default_factory=dict)
    """Bytes that a leader's log grows by; of a log that has just shrunk (retention, compaction) as before."""

    committed: Mapping[str, Offsets] = field(default_factory=dict)
    share_lags: Mapping[str, int | None] = field(default_factory=dict)
    judged: Mapping[str, Judged] = field(default_factory=dict)
    end_samples: Mapping[TopicPartition, tuple[Sample, ...]] = field(default_factory=dict)
    """Ends of partitions that groups have committed for, the oldest first."""

    record_times: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    lags: Mapping[str, GroupLag] = field(default_factory=dict)
    scrapes: Mapping[str, Scrape] = field(default_factory=dict)
    """URL -> the latest page."""

    bytes_in: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """URL -> topic -> bytes appended, by the pages of metrics."""

    bytes_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """URL -> topic -> bytes sent to consumers."""

    request_rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(URL, API) -> requests."""

    cpu: Mapping[str, float] = field(default_factory=dict)
    """URL -> processors that are busy."""

    def after(self, snapshot: Snapshot) -> ClusterHistory:
        """Returns the history with one more snapshot."""
        existing = {
            TopicPartition(topic.name, entry.partition)
            for topic in snapshot.cluster.topics
            for entry in topic.partitions
        }
        ends, records_in = _advance(self.ends, self.records_in, snapshot.ends, snapshot.at, existing)
        sizes, growth = _advance(self.sizes, self.log_growth, snapshot.sizes, snapshot.at, existing)
        names = {group.group_id for group in snapshot.groups}
        committed = _kept({**self.committed, **snapshot.committed}, names)
        share_lags = _kept({**self.share_lags, **snapshot.share_lags}, names)
        members = {group.group_id for group in snapshot.groups if group.state not in MEMBERLESS}
        wanted = {partition for offsets in committed.values() for partition in offsets}
        samples = _remember(self.end_samples, snapshot.ends, snapshot.at, wanted)
        times = {**self.record_times, **snapshot.record_times}
        following = replace(
            self,
            snapshot=snapshot,
            ends=ends,
            sizes=sizes,
            records_in=records_in,
            log_growth=growth,
            committed=committed,
            share_lags=share_lags,
            judged={name: each for name, each in {**self.judged, **snapshot.judged}.items() if name in members},
            end_samples=samples,
            record_times={partition: found for partition, found in times.items() if partition in wanted},
        )
        following = _with_scrapes(following, snapshot.scrapes)
        return replace(following, lags=_lags(following))

    @property
    def partitions(self) -> int:
        """Partitions of the cluster."""
        return sum(len(topic.partitions) for topic in self.snapshot.cluster.topics)

    def wanted_times(self) -> list[tuple[TopicPartition, int]]:
        """Partitions and offsets of records whose time would tell how long a group is behind, the worst lag first.

        At most ``MAX_TIMES``: each costs the bytes of a batch.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        for group, offsets in self.committed.items():
            for partition, offset in offsets.items():
                lag = self._lag_of(partition, offset)
                age = self._age_of(group, partition, offset)
                if lag and (age is None or not age.exact) and lag > found.get(partition, (0, 0))[0]:
                    found[partition] = (lag, offset)
        worst = sorted(found.items(), key=lambda item: -item[1][0])[:MAX_TIMES]
        return [(partition, offset) for partition, (_, offset) in worst]

    def _lag_of(self, partition: TopicPartition, offset: int) -> int | None:
        end = self.ends.get(partition)
        return None if end is None else max(int(end.value) - offset, 0)

    def _age_of(self, group: str, partition: TopicPartition, offset: int) -> Age | None:
        """Seconds that the record at an offset has waited; 0 if there is none yet, None if nobody can tell."""
        by_pages = [
            of_group[partition]
            for scrape in self.scrapes.values()
            if partition in (of_group := scrape.lag_seconds.get(group, {}))
        ]
        if by_pages:
            return Age(max(by_pages))
        end = self.ends.get(partition)
        if end is None:
            return None
        if end.value <= offset:
            return Age(0.0)
        known = self.record_times.get(partition)
        if known is not None and known[0] == offset:
            return Age(max(self.snapshot.cluster.now_ms - known[1], 0) / 1000)
        return age_by_history(self.end_samples.get(partition, ()), offset, self.snapshot.at)


def first(snapshot: Snapshot) -> ClusterHistory:
    """Returns the history after the first snapshot, which has no rates yet."""
    return ClusterHistory(snapshot).after(snapshot)


def age_by_history(history: tuple[Sample, ...], offset: int, now: float) -> Age | None:
    """The time since the record at an offset was written, by when the partition's end passed it.

    Between two looks it is taken to grow evenly. None without a history.
    """
    if not history or history[-1].value <= offset:
        return None
    before: Sample | None = None
    for sample in history:
        if sample.value > offset:
            if before is None:
                return Age(now - sample.at, exact=False)
            share = (offset - before.value) / (sample.value - before.value)
            return Age(now - (before.at + share * (sample.at - before.at)))
        before = sample
    return None


def _advance(
    known: Mapping[TopicPartition, Sample],
    rates: Mapping[TopicPartition, float],
    told: Offsets,
    at: float,
    existing: set[TopicPartition],
) -> tuple[dict[TopicPartition, Sample], dict[TopicPartition, float]]:
    """Samples and rates of the partitions that exist, with what was told now."""
    return rates_after(_kept(known, existing), _kept(rates, existing), _kept(told, existing), at)


def _kept(values: Mapping[K, T], keys: set[K]) -> dict[K, T]:
    return {key: value for key, value in values.items() if key in keys}


def _remember(
    known: Mapping[TopicPartition, tuple[Sample, ...]], told: Offsets, at: float, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[Sample, ...]]:
    following: dict[TopicPartition, tuple[Sample, ...]] = {}
    for partition in sorted(wanted)[:MAX_HISTORIES]:
        samples = known.get(partition, ())
        end = told.get(partition)
        if end is not None and (not samples or at > samples[-1].at):
            if samples and end < samples[-1].value:  # the topic is a new one of the same name, or was cut
                samples = ()
            samples = (*samples, Sample(at, end))[-HISTORY:]
        if samples:
            following[partition] = samples
    return following


# --- Lags -----------------------------------------------------------------------------------------------------------


def _lags(history: ClusterHistory) -> dict[str, GroupLag]:
    found: dict[str, GroupLag] = {group: GroupLag(lag, None) for group, lag in history.share_lags.items()}
    for group, offsets in history.committed.items():
        lags = [history._lag_of(partition, offset) for partition, offset in offsets.items()]
        known = [lag for lag in lags if lag is not None]
        # A member that has committed nothing has yet to read all that is there.
        judged = history.judged.get(group)
        never = [each for each in judged.lagging if each.committed is None] if judged is not None else []
        known += [each.waiting for each in never]
        age = _oldest(history, group, offsets)
        found[group] = GroupLag(sum(known) if known else None, age, len(offsets) + len(never))
    return found


def _oldest(history: ClusterHistory, group: str, offsets: Offsets) -> Age | None:
    """The longest wait of a group's partitions; not exact if one whose wait is not known may be longer."""
    longest: Age | None = None
    is_whole = True
    for partition, offset in offsets.items():
        age = history._age_of(group, partition, offset)
        if age is None:
            is_whole = False
            continue
        is_whole = is_whole and age.exact
        if longest is None or age.seconds > longest.seconds:
            longest = age
    return None if longest is None else Age(longest.seconds, is_whole)


# --- Pages of metrics -----------------------------------------------------------------------------------------------


def _with_scrapes(history: ClusterHistory, scrapes: Iterable[Scrape]) -> ClusterHistory:
    known = dict(history.scrapes)
    bytes_in, bytes_out = dict(history.bytes_in), dict(history.bytes_out)
    requests, cpu = dict(history.request_rates), dict(history.cpu)
    for scrape in scrapes:
        before = known.get(scrape.url)
        if before is not None and scrape.at > before.at:
            seconds = scrape.at - before.at
            bytes_in[scrape.url] = rates_of_counters(before.bytes_in, scrape.bytes_in, seconds)
            bytes_out[scrape.url] = rates_of_counters(before.bytes_out, scrape.bytes_out, seconds)
            counts = [{entry.api: entry.count for entry in page.requests} for page in (before, scrape)]
            for api, rate in rates_of_counters(counts[0], counts[1], seconds).items():
                requests[scrape.url, api] = rate
            if before.cpu_seconds is not None and scrape.cpu_seconds is not None:
                cpu[scrape.url] = max(scrape.cpu_seconds - before.cpu_seconds, 0.0) / seconds
        known[scrape.url] = scrape
    return replace(history, scrapes=known, bytes_in=bytes_in, bytes_out=bytes_out, request_rates=requests, cpu=cpu)
