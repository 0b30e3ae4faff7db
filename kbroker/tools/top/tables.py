"""The views of ``kbroker top`` as tables: what is known of a cluster, in rows and columns. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kbroker.client.topics import leaderless, under_replicated
from kbroker.client.troubles import ERROR, Trouble, cluster_troubles, topic_troubles
from kbroker.tools.cli.output import size
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
from kbroker.tools.top.course import Course
from kbroker.tools.top.facts import RequestTimes
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


def flow_of_topic(course: Course, name: str, partitions: Iterable[int]) -> Flow:
    """The flow of some partitions of a topic, by offsets and sizes; bytes by metrics where each broker has a page."""
    places = [TopicPartition(name, partition) for partition in partitions]
    pages_in = [found[name] for found in course.bytes_in.values() if name in found]
    pages_out = [found[name] for found in course.bytes_out.values() if name in found]
    return Flow(
        _sum(course.records_in.get(place) for place in places),
        sum(pages_in) if _has_all_pages(course) and course.bytes_in else _sum(map(course.log_growth.get, places)),
        sum(pages_out) if course.bytes_out else None,
    )


def _has_all_pages(course: Course) -> bool:
    return len(course.scrapes) >= sum(not broker.fenced for broker in course.look.brokers)


def flows_of_nodes(course: Course) -> dict[int, Flow]:
    """Broker -> what comes into the partitions that it leads, and what goes out by its page of metrics."""
    records: dict[int, float] = {}
    growth: dict[int, float] = {}
    for topic in course.look.topics:
        for entry in topic.partitions:
            place = TopicPartition(topic.name, entry.partition)
            for sums, rates in ((records, course.records_in), (growth, course.log_growth)):
                if entry.leader is not None and place in rates:
                    sums[entry.leader] = sums.get(entry.leader, 0.0) + rates[place]
    urls = {scrape.node: scrape.url for scrape in course.scrapes.values() if scrape.url in course.bytes_in}
    return {
        broker.id: Flow(
            records.get(broker.id),
            sum(course.bytes_in[urls[broker.id]].values()) if broker.id in urls else growth.get(broker.id),
            sum(course.bytes_out[urls[broker.id]].values()) if broker.id in urls else None,
        )
        for broker in course.look.brokers
    }


def troubles(course: Course) -> list[Trouble]:
    """The troubles of the cluster, in words, errors first."""
    look = course.look
    alive = {broker.id for broker in look.brokers if not broker.fenced}
    found = cluster_troubles(look.brokers, look.controller, (), look.now_ms, look.silent)
    found += topic_troubles(look.topics, alive, {})
    return sorted(found, key=lambda trouble: trouble.severity != ERROR)


# --- Views ----------------------------------------------------------------------------------------------------------


def nodes(course: Course) -> Table:
    """A row for each broker."""
    look = course.look
    flows = flows_of_nodes(course)
    rows = []
    for broker in look.brokers:
        state, flow = look.nodes.get(broker.id), flows[broker.id]
        page = next((each for each in course.scrapes.values() if each.node == broker.id), None)
        name = f"{broker.id}{' *' if broker.id == look.controller else ''}"
        told, style = (
            ("fenced", BAD) if broker.fenced else ("silent", BAD) if broker.id in look.silent else ("up", GOOD)
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
                number(None if page is None else course.cpu.get(page.url), lambda busy: f"{busy:.0%}"),
                number(None if page is None else page.memory, lambda each: size(int(each))),
                milliseconds(None if page is None else page.turn_ms),
            )
        )
    columns = [Column("node"), Column("address", False), Column("state", False)]
    columns += map(Column, ("leads", "replicas", "behind", "records/s in", "bytes in", "bytes out", "connections"))
    columns += map(Column, ("cpu", "memory", "turn ms"))
    note = "* the active controller" if look.controller in look.nodes else ""
    return Table("nodes", tuple(columns), tuple(rows), 0, "no broker is registered", note)


def topics(course: Course) -> Table:
    """A row for each topic, internal ones included."""
    rows = []
    for topic in course.look.topics:
        numbers = [entry.partition for entry in topic.partitions]
        places = [TopicPartition(topic.name, partition) for partition in numbers]
        flow = flow_of_topic(course, topic.name, numbers)
        dead, short = leaderless(topic), under_replicated(topic)
        state = Cell(f"{dead} offline", 2.0, BAD) if dead else Cell(f"{short} short", 1.0, WARN) if short else None
        rows.append(
            (
                text(topic.name),
                number(len(numbers)),
                number(topic.replication_factor),
                rate(flow.records_in),
                bytes_rate(flow.bytes_in),
                bytes_rate(flow.bytes_out),
                number(_sum(found.value for place in places if (found := course.sizes.get(place))), _size),
                state or Cell("ok", 0.0, GOOD),
            )
        )
    titles = ("partitions", "replicas", "records/s in", "bytes in", "bytes out", "size", "state")
    columns = (Column("topic", False), *map(Column, titles))
    return Table("topics", columns, tuple(rows), 3, "there is no topic", _part_note(course))


def _size(value: float) -> str:
    return size(int(value))


def _part_note(course: Course) -> str:
    """The part that a look asked for, if that was not everything."""
    asked, every = len(course.look.ends), sum(1 for topic in course.look.topics for _ in topic.partitions)
    known = len(course.ends)
    if asked >= every or not asked:
        return ""
    return f"each look asks for {asked:,} of {every:,} partitions in turn; {known:,} are known"


def groups(course: Course) -> Table:
    """A row for each group."""
    rows = []
    for group in course.look.groups:
        lag = course.lags.get(group.group_id)
        rows.append(
            (
                text(group.group_id),
                text(group.type.lower() or None),
                text(group.state or None, WARN if "ebalanc" in group.state or group.state == "Dead" else PLAIN),
                number(None if lag is None else lag.partitions or None),
                number(None if lag is None else lag.records),
                age(None if lag is None else lag.age),
            )
        )
    columns = (
        Column("group", False),
        Column("type", False),
        Column("state", False),
        Column("partitions"),
        Column("lag in records"),
        Column("lag in time"),
    )
    known = len(course.committed) + len(course.share_lags)
    note = ""
    if len(course.look.groups) > known:
        note = f"the offsets of {known:,} of {len(course.look.groups):,} groups are known; others follow in turn"
    return Table("groups", columns, tuple(rows), 4, "there is no group", note)


def partitions(course: Course) -> Table:
    """A row for each partition in trouble: without a leader, or with replicas that are not in sync."""
    rows = []
    for topic in course.look.topics:
        for entry in topic.partitions:
            missing = [replica for replica in entry.replicas if replica not in entry.isr]
            if entry.leader is not None and not missing:
                continue
            state = Cell("offline", 1.0, BAD) if entry.leader is None else Cell("short", 0.0, WARN)
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


def transactions(course: Course) -> Table:
    """A row for each open transaction, with the records that it hides from ``read_committed``."""
    look = course.look
    rows = []
    for each in look.transactions:
        held = _sum(look.held.get(partition) for partition in each.partitions)
        open_for = None if each.started_ms is None else max(look.now_ms - each.started_ms, 0) / 1000
        rows.append(
            (
                text(each.transactional_id),
                text(each.state),
                number(open_for, seconds, WARN if open_for is not None and open_for >= 60 else PLAIN),
                number(held, style=WARN if held else PLAIN),
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
    if look.transactions_count > len(look.transactions):
        note = f"{len(look.transactions):,} of {look.transactions_count:,} open transactions are described"
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


def requests(course: Course) -> Table:
    """A row for each API of each node whose page of metrics is read, the slowest first."""
    rows = []
    for scrape in course.scrapes.values():
        for each in scrape.requests:
            if each.slow is None and not each.count:
                continue
            rows.append(
                (
                    text(each.api),
                    text(scrape.url if scrape.node is None else str(scrape.node)),
                    rate(course.request_rates.get((scrape.url, each.api))),
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


VIEWS: Final[tuple[tuple[str, Callable[[Course], Table] | None], ...]] = (
    ("overview", None),
    ("nodes", nodes),
    ("topics", topics),
    ("groups", groups),
    ("partitions", partitions),
    ("transactions", transactions),
    ("requests", requests),
)
"""The views by their names, in the order of their digits; the overview is made of the others."""


def totals(course: Course) -> Iterator[tuple[str, str, str]]:
    """The numbers above every view: name, value, style."""
    look = course.look
    flow = Flow()
    for topic in look.topics:
        flow = flow.plus(flow_of_topic(course, topic.name, [entry.partition for entry in topic.partitions]))
    up = sum(not broker.fenced and broker.id not in look.silent for broker in look.brokers)
    short = sum(map(under_replicated, look.topics))
    dead = sum(map(leaderless, look.topics))
    yield "nodes", f"{up} of {len(look.brokers)} up", GOOD if up == len(look.brokers) else BAD
    yield "topics", f"{len(look.topics):,}", PLAIN
    yield "partitions", f"{course.partitions:,}", PLAIN
    yield "under-replicated", f"{short:,}", WARN if short else GOOD
    yield "offline", f"{dead:,}", BAD if dead else GOOD
    yield "records/s in", rate(flow.records_in).text, PLAIN
    yield "bytes in", bytes_rate(flow.bytes_in).text, PLAIN
    if course.bytes_out:
        yield "bytes out", bytes_rate(flow.bytes_out).text, PLAIN
    yield "groups", f"{len(look.groups):,}", PLAIN
    yield "open transactions", f"{look.transactions_count:,}", PLAIN


class Views:
    """The views of a course, each made when it is first wanted: keys that only turn and scroll cost little."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self._tables: dict[int, Table] = {}

    def table(self, view: int) -> Table | None:
        """The view at a place in ``VIEWS``; None for the overview."""
        make = VIEWS[view][1]
        if make is not None and view not in self._tables:
            self._tables[view] = make(self.course)
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
        return list(totals(self.course))

    @functools.cached_property
    def troubles(self) -> list[Trouble]:
        """The troubles of the cluster, in words."""
        return troubles(self.course)
