"""Asks a cluster what ``kbroker top`` shows, with few requests however large the cluster is.

A look takes at most ``REQUESTS`` requests for the cluster and ``REQUESTS_A_NODE`` for each broker. Of the partitions
and groups it asks for a part, and for the next part in the next look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from kbroker.client import ApiNotServed, Client, ClientError, ResponseError
from kbroker.client.batches import times_of_records
from kbroker.client.groups import (
    CLASSIC,
    CONSUMER,
    MEMBERLESS,
    GroupDescription,
    GroupListing,
    assigned_to,
    committed_by_node,
    describe_by_node,
    groups_of_node,
)
from kbroker.client.nodes import describe_cluster
from kbroker.client.open_transactions import OPEN_STATES, OpenTransaction
from kbroker.client.patience import patience
from kbroker.client.share_groups import SHARE, share_lags
from kbroker.client.topics import (
    EARLIEST,
    LATEST,
    TopicDescription,
    list_topics,
    listed_offsets,
    offsets_request,
    sizes_request,
)
from kbroker.client.transactions import (
    ProducerState,
    TransactionDescription,
    describe_transactions_of_node,
    transactions_of_node,
)
from kbroker.tools.diagnosis.asking import ask_quorum, now_ms
from kbroker.tools.diagnosis.facts import ClusterView, Holder, Quorum, replica_counts
from kbroker.tools.diagnosis.group_watch import GroupWatch, Judged, spot_of
from kbroker.tools.diagnosis.stuck_groups import GroupState, LaggingPartition, findings, progress
from kbroker.tools.top.facts import Scrape, Snapshot
from kbroker.tools.top.scraping import CannotScrape, scrape
from kbroker.types import TopicPartition

T = TypeVar("T")

PARTITIONS: Final = 2000
"""Partitions whose ends and sizes are asked for in one look."""

GROUPS: Final = 100
"""Groups whose offsets are asked for in one look."""

TRANSACTIONS: Final = 50
"""Open transactions that are described."""

REQUESTS: Final = 3
"""Requests of one look beside those to each node: DescribeCluster, DescribeQuorum, Metadata."""

REQUESTS_A_NODE: Final = 15
"""ListOffsets five times, DescribeLogDirs, ListGroups, OffsetFetch, DescribeShareGroupOffsets, DescribeGroups,
ConsumerGroupDescribe, ListTransactions, DescribeTransactions, Fetch, and a page of metrics. Brokers before Apache Kafka
3.0 take an OffsetFetch a group. Where a group is stuck before the end of a log, that end is read once."""

PATIENCE: Final = 2.0
"""Seconds that one broker is waited for, and one page of metrics."""

TOPICS_SECONDS: Final = 5.0
TIMES_AS_LONG: Final = 20
"""All topics are asked for again after so many seconds, or as many times the time that asking took."""

SCRAPE_SECONDS: Final = 5.0
"""Pages of metrics are asked for no more often: a node forgets half of its quantiles with each."""


ONCE: Final = 10
"""Times as many partitions and groups are asked for by somebody who looks twice and never again."""


class Rotation:
    """Takes a part of a list in each turn, and the next part in the next turn."""

    def __init__(self, most: int, *, moves: bool = True) -> None:
        """With ``moves`` false it takes the same part each time."""
        self._most = most
        self._moves = moves
        self._next = 0

    def take(self, items: Sequence[T]) -> Sequence[T]:
        """The next part; all if it is not more than one part."""
        if len(items) <= self._most:
            return items
        begin = self._next % len(items)
        part = list(items[begin : begin + self._most])
        part += items[: self._most - len(part)]
        if self._moves:
            self._next = begin + self._most
        return part


class Observer:
    """Looks at one cluster again and again, or with ``once`` twice. ``metrics`` are addresses of pages of metrics."""

    def __init__(
        self,
        client: Client,
        metrics: Sequence[str] = (),
        *,
        once: bool = False,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        """Wait for a broker, or a page, for ``patience`` seconds at most."""
        self.client = client
        self.patience = patience
        self.clock = clock
        self.partitions = Rotation(PARTITIONS * (ONCE if once else 1), moves=not once)
        self.groups = Rotation(GROUPS * (ONCE if once else 1), moves=not once)
        self.turn = 0
        self.watch = GroupWatch()
        self._metrics = metrics
        self._scrape_seconds = 0.0 if once else SCRAPE_SECONDS
        self._scrape_problems: Sequence[str] = ()
        self._topics: tuple[TopicDescription, ...] = ()
        self._topics_stale = 0.0
        self._scrape_at = 0.0

    def look(self, wanted_times: Sequence[tuple[TopicPartition, int]] = ()) -> Snapshot:
        """Ask once. ``wanted_times``: partitions and offsets of records whose times would help.

        ``ClientError`` if nobody answers at all.
        """
        return _OneLook(self, wanted_times).run()

    # --- Parts that are remembered from look to look ----------------------------------------------------------------

    def topics(self, count: Callable[[], None]) -> tuple[TopicDescription, ...]:
        """All topics, at most a little old."""
        began = self.clock()
        if began >= self._topics_stale:
            count()
            self._topics = tuple(list_topics(self.client))
            now = self.clock()
            self._topics_stale = now + max(TOPICS_SECONDS, TIMES_AS_LONG * (now - began))
        return self._topics

    def scrapes(self) -> tuple[list[Scrape], Sequence[str]]:
        """The pages of metrics if it is time for them, and what is wrong with them."""
        pages: list[Scrape] = []
        problems: list[str] = []
        began = self.clock()
        if began >= self._scrape_at:
            for url in self._metrics:
                try:
                    pages.append(scrape(url, self.clock(), self.patience))
                except CannotScrape as error:
                    problems.append(str(error))
            now = self.clock()
            self._scrape_at = began + max(
                self._scrape_seconds, 0 if not self._scrape_seconds else TIMES_AS_LONG * (now - began)
            )
            self._scrape_problems = problems
        return pages, self._scrape_problems


class _OneLook:
    """The questions of one look. A broker that does not answer is asked no more in it."""

    def __init__(self, observer: Observer, wanted_times: Sequence[tuple[TopicPartition, int]]) -> None:
        self._observer = observer
        self._client = observer.client
        self._wanted_times = wanted_times
        self._requests = 0
        self._silent: dict[int, str] = {}
        self._problems: list[str] = []

    def run(self) -> Snapshot:
        """All answers."""
        observer, client = self._observer, self._client
        self._count()
        cluster = describe_cluster(client)
        quorum = self._quorum()
        topics = observer.topics(self._count)
        nodes = [broker.id for broker in cluster.brokers if not broker.fenced]
        led: dict[int, list[TopicPartition]] = {}
        part = observer.partitions.take([each for topic in topics for each in _led(topic)])
        for partition, leader in part:
            led.setdefault(leader, []).append(partition)
        at = observer.clock()
        ends, sizes = self._ends(led), self._sizes(led)
        groups = self._groups(nodes)
        committed, lags, described = self._committed(groups)
        transactions, count = self._transactions(nodes)
        scrapes, problems = observer.scrapes()
        leaders = {partition: leader for topic in topics for partition, leader in _led(topic)}
        times, blocked = self._times(leaders), self._blocked(transactions, leaders, ends)
        judged = self._judge(described, committed, leaders, ends, transactions, blocked)
        return Snapshot(
            at,
            ClusterView(
                now_ms(),
                cluster.cluster_id,
                cluster.brokers,
                quorum,
                dict(self._silent),
                topics=topics,
                counts=replica_counts(topics, cluster.brokers),
                transactions=transactions,
            ),
            ends=ends,
            sizes=sizes,
            groups=tuple(listing for _, listing in groups),
            committed=committed,
            share_lags=lags,
            judged=judged,
            record_times=times,
            transactions_count=count,
            blocked=blocked,
            scrapes=tuple(scrapes),
            problems=tuple(dict.fromkeys([*self._problems, *problems])),
            requests=self._requests,
        )

    def _count(self) -> None:
        self._requests += 1

    def _ask(self, node: int, question: Callable[[], T]) -> T | None:
        """The answer of one broker; None, with the reason noted, if there is none."""
        if node in self._silent:
            return None
        self._count()
        try:
            with patience(self._client, self._observer.patience):
                return question()
        except (ApiNotServed, ResponseError) as error:
            self._problems.append(str(error))
        except ClientError as error:
            self._silent[node] = str(error)
        return None

    def _quorum(self) -> Quorum | None:
        self._count()
        with patience(self._client, self._observer.patience):
            return ask_quorum(self._client)[0]

    def _ends(
        self, led: Mapping[int, Sequence[TopicPartition]], *, committed: bool = False, at: int = LATEST
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node, partitions in _parts(led):
            timeout_ms = int(self._observer.patience * 1000)
            request = offsets_request(dict.fromkeys(partitions, at), timeout_ms, read_committed=committed)
            response = self._ask(node, partial(self._client.ask_node, node, request))
            if response is not None:
                found |= {each: listed.offset for each, code, listed in listed_offsets(response) if not code}
        return found

    def _sizes(self, led: Mapping[int, Sequence[TopicPartition]]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node, partitions in _parts(led):
            request = sizes_request(partitions)
            response = self._ask(node, partial(self._client.ask_node, node, request))
            for directory in () if response is None else response.results:
                for topic in directory.topics:
                    for entry in topic.partitions:
                        if not entry.is_future_key:
                            found[TopicPartition(topic.name, entry.partition_index)] = entry.partition_size
        return found

    def _groups(self, nodes: Iterable[int]) -> list[tuple[int, GroupListing]]:
        """Each group with its coordinator, by name."""
        found: dict[str, tuple[int, GroupListing]] = {}
        for node in nodes:
            listed = self._ask(node, partial(groups_of_node, self._client, node))
            found |= {group.group_id: (node, group) for group in listed or ()}
        return [found[name] for name in sorted(found)]

    def _committed(
        self, groups: Sequence[tuple[int, GroupListing]]
    ) -> tuple[dict[str, Mapping[TopicPartition, int]], dict[str, int | None], dict[str, GroupDescription]]:
        by_node: dict[tuple[int, bool], list[GroupListing]] = {}
        for node, group in self._observer.groups.take(groups):
            by_node.setdefault((node, group.type == SHARE), []).append(group)
        committed: dict[str, Mapping[TopicPartition, int]] = {}
        lags: dict[str, int | None] = {}
        described: dict[str, GroupDescription] = {}
        for (node, is_share), listed in by_node.items():
            names = [group.group_id for group in listed]
            if is_share:
                lags |= self._ask(node, partial(share_lags, self._client, node, names)) or {}
                continue
            told = self._ask(node, partial(committed_by_node, self._client, node, names))
            committed |= told or {}
            for kind in (CLASSIC, CONSUMER):
                those = [each for each in listed if each.type == kind and each.state not in MEMBERLESS]
                if those:
                    described |= self._ask(node, partial(describe_by_node, self._client, node, those)) or {}
        return committed, lags, described

    def _judge(
        self,
        described: Mapping[str, GroupDescription],
        committed: Mapping[str, Mapping[TopicPartition, int]],
        leaders: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        transactions: Iterable[TransactionDescription],
        blocked: Mapping[TopicPartition, int],
    ) -> dict[str, Judged]:
        """Judge the groups with members; those of which something is not known are left for another look."""
        watch, at_ms = self._observer.watch, now_ms()
        assigned = {each for group in described.values() for member in group.members for each in member.assignment}
        never = assigned.difference(*committed.values()) & leaders.keys()
        led: dict[int, list[TopicPartition]] = {}
        for partition in sorted(never)[:PARTITIONS]:
            led.setdefault(leaders[partition], []).append(partition)
        starts = self._ends(led, at=EARLIEST)
        missing = {node: left for node, those in led.items() if (left := [each for each in those if each not in ends])}
        known = {**ends, **self._ends(missing)}
        owners = {partition: each for each in transactions for partition in each.partitions}
        found: dict[str, Judged] = {}
        for name, group in described.items():
            offsets = committed.get(name, {})
            ranges = {each: (begin, known[each]) for each, begin in {**starts, **offsets}.items() if each in known}
            own = {each: ranges[each] for each in {*offsets, *assigned_to(group)} & ranges.keys()}
            lagging = []
            for each in watch.lagging(group, offsets, own, at_ms):
                held = blocked.get(each.partition, 0)
                lagging.append(each if not held else _held(each, held, owners.get(each.partition)))
            still = {spot_of(each): each.end for each in lagging if each.stable is None and each.stall.is_stuck(at_ms)}
            with patience(self._client, self._observer.patience):
                empty = watch.gaps.look(self._client, still) if still else set()
            lagging = [each for each in lagging if spot_of(each) not in empty]
            state = GroupState(name, group.state, len(group.members))
            reasons = findings(state, lagging, at_ms)
            found[name] = Judged(lagging, reasons, progress(state, lagging, reasons, at_ms))
        return found

    def _transactions(self, nodes: Iterable[int]) -> tuple[tuple[TransactionDescription, ...], int]:
        listed: dict[int, list[Any]] = {}
        for node in nodes:
            found = self._ask(node, partial(transactions_of_node, self._client, node, OPEN_STATES))
            if found:
                listed[node] = found
        count = sum(map(len, listed.values()))
        left = TRANSACTIONS
        result: list[TransactionDescription] = []
        for node, transactions in listed.items():
            part = transactions[:left]
            left -= len(part)
            names = [each.transactional_id for each in part]
            described = (
                self._ask(node, partial(describe_transactions_of_node, self._client, node, names)) if names else None
            )
            for each in part:
                known = (described or {}).get(each.transactional_id)
                unknown = TransactionDescription(
                    each.transactional_id, node, each.state, each.producer_id, -1, -1, None, ()
                )
                result.append(known or unknown)
        return tuple(sorted(result, key=lambda each: (each.start_timestamp or 0, each.transactional_id))), count

    def _blocked(
        self,
        transactions: Iterable[TransactionDescription],
        leaders: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Records after the last stable offset, of the partitions that open transactions have written to."""
        led: dict[int, list[TopicPartition]] = {}
        missing: dict[int, list[TopicPartition]] = {}
        partitions = sorted({each for transaction in transactions for each in transaction.partitions} & leaders.keys())
        for partition in partitions[:PARTITIONS]:
            led.setdefault(leaders[partition], []).append(partition)
            if partition not in ends:
                missing.setdefault(leaders[partition], []).append(partition)
        known = {**ends, **self._ends(missing)}
        stable = self._ends(led, committed=True)
        return {each: max(known[each] - offset, 0) for each, offset in stable.items() if each in known}

    def _times(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Times of the wanted records. Another partition comes first in each look: the first one gets a whole batch."""
        wanted = [(each, offset) for each, offset in self._wanted_times if each in leaders]
        turn = self._observer.turn = self._observer.turn + 1
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for index in range(len(wanted)):
            partition, offset = wanted[(index + turn) % len(wanted)]
            by_node.setdefault(leaders[partition], {})[partition] = offset
        found: dict[TopicPartition, tuple[int, int]] = {}
        for node, offsets in by_node.items():
            times = self._ask(node, partial(times_of_records, self._client, node, offsets))
            found |= {each: (offsets[each], time_ms) for each, time_ms in (times or {}).items()}
        return found


def _held(lagging: LaggingPartition, records: int, owner: TransactionDescription | None) -> LaggingPartition:
    """The partition with the records at its end that an open transaction holds back."""
    stable = lagging.end - records
    if owner is None:
        return replace(lagging, stable=stable)
    producer = ProducerState(owner.producer_id, owner.producer_epoch, -1, -1, -1, stable)
    return replace(lagging, stable=stable, holder=Holder(OpenTransaction(lagging.partition, stable, producer), owner))


def _parts(led: Mapping[int, Sequence[TopicPartition]]) -> Iterable[tuple[int, Sequence[TopicPartition]]]:
    """Each broker with partitions that it leads, not too many for one request."""
    return (
        (node, partitions[begin : begin + PARTITIONS])
        for node, partitions in led.items()
        for begin in range(0, len(partitions), PARTITIONS)
    )


def _led(topic: TopicDescription) -> Iterable[tuple[TopicPartition, int]]:
    """The partitions of a topic that somebody leads, each with its leader."""
    return (
        (TopicPartition(topic.name, entry.partition), entry.leader)
        for entry in topic.partitions
        if entry.leader is not None
    )
