"""The views of ``kbroker top`` as tables: what is known of a cluster, in rows and columns. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kbroker.client.groups import REBALANCING
from kbroker.client.topics import leaderless, under_replicated
from kbroker.tools.cli.output import size
from kbroker.tools.diagnosis.cluster import findings, is_overdue, open_ms
from kbroker.tools.diagnosis.findings import Finding
from kbroker.tools.diagnosis.group_watch import Judged
from kbroker.tools.top.cells import (
    BAD,
    GOOD,
    PLAIN,
    WARN,
    Cell,
    Column,
    Table,
    age,
    bytes_rate,
    milliseconds,
    number,
    rate,
    seconds,
    text,
)
from kbroker.tools.top.facts import RequestTimes
from kbroker.tools.top.history import ClusterHistory
from kbroker.tools.top.scraping import STAGES
from kbroker.types import TopicPartition

_STAGE_TITLES: Final = {
    "requestqueue": "queue ms",
    "local": "work ms",
    "remote": "wait ms",
    "responsequeue": "in order ms",
    "responsesend": "send ms",
}


# --- Sums -----------------------------------------------------------------------------------------------------------


class Flow(NamedTuple):
    """Records and bytes that come in and go out, a second. None: not known."""

    records_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None

    def plus(self, other: Flow) -> Flow:
        """Both together; what is not known of one counts as nothing."""
        return Flow(*(_sum(pair) for pair in zip(self, other, strict=True)))


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def flow_of_topic(history: ClusterHistory, name: str, partitions: Iterable[int]) -> Flow:
    """The flow of some partitions of a topic, by offsets and sizes; bytes by metrics where each broker has a page."""
    places = [TopicPartition(name, partition) for partition in partitions]
    pages_in = [found[name] for found in history.bytes_in.values() if name in found]
    pages_out = [found[name] for found in history.bytes_out.values() if name in found]
    return Flow(
        _sum(history.records_in.get(place) for place in places),
        sum(pages_in) if _has_all_pages(history) and history.bytes_in else _sum(map(history.log_growth.get, places)),
        sum(pages_out) if history.bytes_out else None,
    )


def _has_all_pages(history: ClusterHistory) -> bool:
    return len(history.scrapes) >= sum(not broker.fenced for broker in history.snapshot.cluster.brokers)


def flows_of_nodes(history: ClusterHistory) -> dict[int, Flow]:
    """Broker -> what comes into the partitions that it leads, and what goes out by its page of metrics."""
    records: dict[int, float] = {}
    growth: dict[int, float] = {}
    for topic in history.snapshot.cluster.topics:
        for entry in topic.partitions:
            place = TopicPartition(topic.name, entry.partition)
            for sums, rates in ((records, history.records_in), (growth, history.log_growth)):
                if entry.leader is not None and place in rates:
                    sums[entry.leader] = sums.get(entry.leader, 0.0) + rates[place]
    urls = {scrape.node: scrape.url for scrape in history.scrapes.values() if scrape.url in history.bytes_in}
    return {
        broker.id: Flow(
            records.get(broker.id),
            sum(history.bytes_in[urls[broker.id]].values()) if broker.id in urls else growth.get(broker.id),
            sum(history.bytes_out[urls[broker.id]].values()) if broker.id in urls else None,
        )
        for broker in history.snapshot.cluster.brokers
    }


# --- Views ----------------------------------------------------------------------------------------------------------


def nodes(history: ClusterHistory) -> Table:
    """A row for each broker."""
    cluster = history.snapshot.cluster
    flows = flows_of_nodes(history)
    rows = []
    for broker in cluster.brokers:
        state, flow = cluster.counts.get(broker.id), flows[broker.id]
        page = next((each for each in history.scrapes.values() if each.node == broker.id), None)
        name = f"{broker.id}{' *' if broker.id == cluster.controller else ''}"
        told, style = (
            ("fenced", BAD) if broker.fenced else ("silent", BAD) if broker.id in cluster.silent else ("up", GOOD)
        )
        behind = None if state is None else state.out_of_sync
        rows.append(
            (
                Cell(name, broker.id),
                text(f"{broker.host}:{broker.port}"),
                text(told, style),
                number(None if state is None else state.leads),
                number(None if state is None else state.replicas),
                number(behind, style=WARN if behind else PLAIN),
                rate(flow.records_in),
                bytes_rate(flow.bytes_in),
                bytes_rate(flow.bytes_out),
                number(None if page is None else page.connections),
                number(None if page is None else history.cpu.get(page.url), lambda busy: f"{busy:.0%}"),
                number(None if page is None else page.memory, lambda each: size(int(each))),
                milliseconds(None if page is None else page.turn_ms),
            )
        )
    columns = [Column("node"), Column("address", False), Column("state", False)]
    columns += map(Column, ("leads", "replicas", "behind", "records/s in", "bytes in", "bytes out", "connections"))
    columns += map(Column, ("cpu", "memory", "turn ms"))
    note = "* the active controller" if cluster.controller in cluster.counts else ""
    return Table("nodes", tuple(columns), tuple(rows), 0, "no broker is registered", note)


def topics(history: ClusterHistory) -> Table:
    """A row for each topic, internal ones included."""
    rows = []
    for topic in history.snapshot.cluster.topics:
        numbers = [entry.partition for entry in topic.partitions]
        places = [TopicPartition(topic.name, partition) for partition in numbers]
        flow = flow_of_topic(history, topic.name, numbers)
        dead, under = leaderless(topic), under_replicated(topic)
        state = Cell("ok", 0.0, GOOD)
        if dead:
            state = Cell(f"{dead} offline", 2.0, BAD)
        elif under:
            state = Cell(f"{under} under-replicated", 1.0, WARN)
        rows.append(
            (
                text(topic.name),
                number(len(numbers)),
                number(topic.replication_factor),
                rate(flow.records_in),
                bytes_rate(flow.bytes_in),
                bytes_rate(flow.bytes_out),
                number(_sum(found.value for place in places if (found := history.sizes.get(place))), _size),
                state,
            )
        )
    titles = ("partitions", "replicas", "records/s in", "bytes in", "bytes out", "size", "state")
    columns = (Column("topic", False), *map(Column, titles))
    return Table("topics", columns, tuple(rows), 3, "there is no topic", _part_note(history))


def _size(value: float) -> str:
    return size(int(value))


def _part_note(history: ClusterHistory) -> str:
    """The part that a look asked for, if that was not everything."""
    asked, every = len(history.snapshot.ends), history.partitions
    known = len(history.ends)
    if asked >= every or not asked:
        return ""
    return f"each look asks for {asked:,} of {every:,} partitions in turn; {known:,} are known"


def _progress(judged: Judged | None) -> Cell:
    """The state of a group with members, by the rules of the console and the doctor."""
    if judged is None or judged.progress.kind == "unknown":
        return text(None)
    kind = judged.progress.kind
    return text(kind.replace("-", " "), BAD if kind == "stuck" else WARN if judged.progress.needs_attention else PLAIN)


def groups(history: ClusterHistory) -> Table:
    """A row for each group."""
    rows = []
    for group in history.snapshot.groups:
        lag, judged = history.lags.get(group.group_id), history.judged.get(group.group_id)
        rows.append(
            (
                text(group.group_id),
                text(group.type.lower() or None),
                text(group.state or None, WARN if group.state in REBALANCING or group.state == "Dead" else PLAIN),
                number(None if lag is None else lag.partitions or None),
                number(None if lag is None else lag.records),
                age(None if lag is None else lag.age),
                _progress(judged),
                text(judged.reasons[0].text if judged is not None and judged.reasons else None),
            )
        )
    columns = (
        Column("group", False),
        Column("type", False),
        Column("state", False),
        Column("partitions"),
        Column("lag in records"),
        Column("lag in time"),
        Column("progress", False),
        Column("why", False),
    )
    known = len(history.committed) + len(history.share_lags)
    note = ""
    if len(history.snapshot.groups) > known:
        note = f"the offsets of {known:,} of {len(history.snapshot.groups):,} groups are known; others follow in turn"
    return Table("groups", columns, tuple(rows), 4, "there is no group", note)


def partitions(history: ClusterHistory) -> Table:
    """A row for each partition in trouble: without a leader, or with replicas that are not in sync."""
    rows = []
    for topic in history.snapshot.cluster.topics:
        for entry in topic.partitions:
            missing = [replica for replica in entry.replicas if replica not in entry.isr]
            if entry.leader is not None and not missing:
                continue
            state = Cell("offline", 1.0, BAD) if entry.leader is None else Cell("under-replicated", 0.0, WARN)
            rows.append(
                (
                    Cell(f"{topic.name}-{entry.partition}", f"{topic.name.lower()}-{entry.partition:08}"),
                    state,
                    text(None if entry.leader is None else str(entry.leader)),
                    text(_brokers(entry.replicas)),
                    text(_brokers(entry.isr)),
                    text(_brokers(missing)),
                )
            )
    titles = ("partition", "state", "leader", "replicas", "in sync", "missing")
    columns = tuple(Column(title, False) for title in titles)
    return Table("partitions", columns, tuple(rows), 0, "every partition has a leader and all replicas in sync")


def _brokers(ids: Iterable[int]) -> str | None:
    return ",".join(map(str, ids)) or None


def transactions(history: ClusterHistory) -> Table:
    """A row for each open transaction, with the records that it hides from ``read_committed``."""
    snapshot = history.snapshot
    rows = []
    for each in snapshot.cluster.transactions:
        blocked = _sum(snapshot.blocked.get(partition) for partition in each.partitions)
        age = open_ms(each, snapshot.cluster.now_ms)
        style = WARN if is_overdue(each, snapshot.cluster.now_ms) else PLAIN
        rows.append(
            (
                text(each.transactional_id),
                text(each.state),
                number(None if age is None else age / 1000, seconds, style),
                number(blocked, style=WARN if blocked else PLAIN),
                number(len(each.partitions)),
                Cell(str(each.producer_id), each.producer_id),
                Cell(str(each.coordinator), each.coordinator),
            )
        )
    columns = (
        Column("transactional id", False),
        Column("state", False),
        Column("open for"),
        Column("holds up records"),
        Column("partitions"),
        Column("producer id"),
        Column("coordinator"),
    )
    note = ""
    if snapshot.transactions_count > len(snapshot.cluster.transactions):
        described = len(snapshot.cluster.transactions)
        note = f"{described:,} of {snapshot.transactions_count:,} open transactions are described"
    return Table("transactions", columns, tuple(rows), 2, "no transaction is open", note)


_WAITING: Final = frozenset(
    {"Fetch", "FetchConsumer", "FetchFollower", "FetchSnapshot", "ShareFetch", "JoinGroup", "SyncGroup"}
)
"""Requests that wait because they are asked to: for records, or for other members."""


def _slowness(each: RequestTimes) -> Cell:
    """The time of the slowest hundredth. What a request has asked to wait does not make it a slow one."""
    shown = milliseconds(each.slow)
    if each.slow is None or each.api not in _WAITING:
        return shown
    return Cell(shown.text, max(each.slow - each.stages.get("remote", 0.0), 0.0))


def requests(history: ClusterHistory) -> Table:
    """A row for each API of each node whose page of metrics is read, the slowest first."""
    rows = []
    for scrape in history.scrapes.values():
        for each in scrape.requests:
            if each.slow is None and not each.count:
                continue
            rows.append(
                (
                    text(each.api),
                    text(scrape.url if scrape.node is None else str(scrape.node)),
                    rate(history.request_rates.get((scrape.url, each.api))),
                    milliseconds(each.middle),
                    _slowness(each),
                    *(milliseconds(each.stages.get(stage)) for stage in STAGES),
                )
            )
    columns = [Column("request", False), Column("node", False)]
    columns += map(Column, ("requests/s", "half ms", "99% ms", *(_STAGE_TITLES[stage] for stage in STAGES)))
    empty = "no page of metrics is read: start nodes with --metrics, and give --metrics URL"
    note = "99% ms: 99 of 100 take no longer; then its stages. Fetches are sorted without the wait that they ask for"
    return Table("requests", tuple(columns), tuple(rows), 4, empty, note)


VIEWS: Final[tuple[tuple[str, Callable[[ClusterHistory], Table] | None], ...]] = (
    ("overview", None),
    ("nodes", nodes),
    ("topics", topics),
    ("groups", groups),
    ("partitions", partitions),
    ("transactions", transactions),
    ("requests", requests),
)
"""The views by their names, in the order of their digits; the overview is made of the others."""


def totals(history: ClusterHistory) -> Iterator[tuple[str, str, str]]:
    """The numbers above every view: name, value, style."""
    snapshot = history.snapshot
    flow = Flow()
    for topic in snapshot.cluster.topics:
        flow = flow.plus(flow_of_topic(history, topic.name, [entry.partition for entry in topic.partitions]))
    up = sum(not broker.fenced and broker.id not in snapshot.cluster.silent for broker in snapshot.cluster.brokers)
    under = sum(map(under_replicated, snapshot.cluster.topics))
    dead = sum(map(leaderless, snapshot.cluster.topics))
    yield "nodes", f"{up} of {len(snapshot.cluster.brokers)} up", GOOD if up == len(snapshot.cluster.brokers) else BAD
    yield "topics", f"{len(snapshot.cluster.topics):,}", PLAIN
    yield "partitions", f"{history.partitions:,}", PLAIN
    yield "under-replicated", f"{under:,}", WARN if under else GOOD
    yield "offline", f"{dead:,}", BAD if dead else GOOD
    yield "records/s in", rate(flow.records_in).text, PLAIN
    yield "bytes in", bytes_rate(flow.bytes_in).text, PLAIN
    if history.bytes_out:
        yield "bytes out", bytes_rate(flow.bytes_out).text, PLAIN
    yield "groups", f"{len(snapshot.groups):,}", PLAIN
    yield "open transactions", f"{snapshot.transactions_count:,}", PLAIN


class Views:
    """The views of a history, each made when it is first wanted: keys that only turn and scroll cost little."""

    def __init__(self, history: ClusterHistory) -> None:
        self.history = history
        self._tables: dict[int, Table] = {}

    def table(self, view: int) -> Table | None:
        """The view at a place in ``VIEWS``; None for the overview."""
        make = VIEWS[view][1]
        if make is not None and view not in self._tables:
            self._tables[view] = make(self.history)
        return self._tables.get(view)

    def prepare(self, view: int) -> None:
        """Make now what a view shows, in a thread that nobody waits for."""
        self.table(view)
        for index in () if VIEWS[view][1] is not None else range(len(VIEWS)):
            self.table(index)
        _ = self.totals, self.troubles

    @functools.cached_property
    def totals(self) -> list[tuple[str, str, str]]:
        """The numbers above every view."""
        return list(totals(self.history))

    @functools.cached_property
    def troubles(self) -> list[Finding]:
        """The troubles of the cluster, in words."""
        return findings(self.history.snapshot.cluster)
