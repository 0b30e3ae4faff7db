"""docs/top.md: what `kbroker top` shows, with a screen that its own code draws of a made-up cluster."""

from __future__ import annotations

from kbroker.client.groups import GroupListing
from kbroker.client.nodes import ClusterBroker
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.client.transactions import TransactionDescription
from kbroker.tools.diagnosis.facts import ClusterView, Quorum, replica_counts
from kbroker.tools.diagnosis.group_watch import Judged
from kbroker.tools.diagnosis.stuck_groups import Progress
from kbroker.tools.top.facts import RequestTimes, Scrape, Snapshot
from kbroker.tools.top.history import ClusterHistory, first
from kbroker.tools.top.keys import HELP, Ui
from kbroker.tools.top.looking import GROUPS, PARTITIONS, REQUESTS, REQUESTS_A_NODE, SCRAPE_SECONDS, TRANSACTIONS
from kbroker.tools.top.screen import draw, plain
from kbroker.tools.top.tables import Views
from kbroker.types import ZERO_UUID, TopicPartition

_WIDTH, _HEIGHT = 118, 33

_TOPICS = {"clicks": (3, 9_200, 410), "orders": (3, 1_310, 96), "payments": (2, 240, 31)}
"""Topic -> partitions, records a second, bytes of each."""


def sample() -> ClusterHistory:
    """A cluster of three nodes, one of them down, seen twice."""
    return first(_look(0)).after(_look(2))


def _look(at: int) -> Snapshot:
    topics = []
    ends: dict[TopicPartition, int] = {}
    sizes: dict[TopicPartition, int] = {}
    for name, (count, rate, each) in _TOPICS.items():
        partitions = []
        for number in range(count):
            replicas = tuple((number + place) % 3 + 1 for place in range(3))
            isr = tuple(node for node in replicas if node != 3)
            partitions.append(PartitionDescription(number, isr[0], 4, replicas, isr, ()))
            ends[TopicPartition(name, number)] = 1_000_000 + rate * at // count
            sizes[TopicPartition(name, number)] = (1_000_000 + rate * at // count) * each
        topics.append(TopicDescription(name, ZERO_UUID, False, tuple(partitions)))
    now_ms = 1_764_115_200_000 + 1000 * at
    brokers = tuple(ClusterBroker(node, f"kafka{node}", 9092, None, node == 3) for node in (1, 2, 3))
    open_for = TransactionDescription(
        "payments-1", 2, "Ongoing", 4001, 0, 60_000, now_ms - 75_000, (TopicPartition("payments", 1),)
    )
    written = {name: 5e9 + rate * each * at for name, (_, rate, each) in _TOPICS.items()}
    times = {"Produce": (0.4, 3.1, 2.2), "Fetch": (12.0, 500.0, 499.0), "OffsetCommit": (0.3, 1.9, 1.5)}
    return Snapshot(
        float(at),
        ClusterView(
            now_ms,
            "q1Sh-9_ASHW2uYyVhSpUwg",
            brokers,
            Quorum(1),
            topics=topics,
            counts=replica_counts(topics, brokers),
            transactions=(open_for,),
        ),
        ends=ends,
        sizes=sizes,
        groups=(
            GroupListing("billing", "Consumer", "consumer", "Stable"),
            GroupListing("warehouse", "Classic", "consumer", "Stable"),
        ),
        committed={
            "billing": {TopicPartition("payments", 0): ends[TopicPartition("payments", 0)]},
            "warehouse": {TopicPartition("orders", number): 999_200 + number for number in range(3)},
        },
        judged={"billing": Judged((), (), Progress("caught-up")), "warehouse": Judged((), (), Progress("lagging"))},
        record_times={TopicPartition("orders", number): (999_200 + number, now_ms - 94_000) for number in range(3)},
        transactions_count=1,
        blocked={TopicPartition("payments", 1): 212},
        scrapes=(
            Scrape(
                "http://kafka1:9404/metrics",
                1,
                float(at),
                written,
                {name: 2 * count for name, count in written.items()},
                {},
                tuple(
                    RequestTimes(api, 50_000 + 400 * at, half, slow, {"local": slow / 10, "remote": remote})
                    for api, (half, slow, remote) in times.items()
                ),
                42.0,
                61e6,
                100 + 0.31 * at,
                1.7,
            ),
        ),
        requests=REQUESTS + 2 * (REQUESTS_A_NODE - 4),
    )


_SOURCES = {
    "records in": "the ends of the partitions, from look to look; markers of transactions count as records",
    "bytes in": "the pages of metrics, if there is one of each broker; else the growth of the leaders' logs: what is on"
    " the disk, compressed. While retention or compaction makes a log smaller, its rate stays as it was",
    "bytes out, connections, memory, processors": "the pages of metrics",
    "lag in records": "committed offsets and ends of partitions, and where a member has committed nothing all that the"
    " log has; of share groups what the coordinator tells (KIP-1226)",
    "lag in time": "of each partition `kafka_consumergroup_lag_seconds` of a page; else when the end passed the"
    " committed offset, as far as that was seen; else the timestamp of the next record's batch. `>` is before a time"
    " that is at least so long",
    "progress, and why": "of groups with members, by the rules of [the console](console.md#a-stuck-group): stuck, stuck"
    " in part, never committed, lagging, caught up. Whether a group advances is what top has seen; nothing is there"
    " until it can tell",
    "partitions in trouble, troubles in words": "the metadata; they are those of [the console](console.md)",
    "open transactions": "their coordinators; what they hold up is the difference of high watermark and last stable"
    " offset. One that its coordinator has forgotten is not seen: `kbroker txn find-hanging` finds it",
    "slow requests": "a page of [metrics](metrics.md) of kbroker, whose stages are explained there",
}

_PAGE = """\
# kbroker top

@NOTE@
What happens in a cluster, live in a terminal: on kbroker and on Apache Kafka.

```console
$ kbroker top -b localhost:9092 --metrics localhost:9404
```

```text
@SCREEN@
```

| key | |
| --- | --- |
@KEYS@

There are no colours with `NO_COLOR`. Where standard output is no terminal, or with `--once`, it looks twice, prints
what it has seen and ends; `--json` makes it one JSON document.

## Where the numbers come from

| number | source |
| --- | --- |
@SOURCES@

`--metrics` takes the address of a node's page, and may be repeated. Each look at a page makes a node forget half of
its quantiles, as each scrape by Prometheus does: top looks every @SCRAPE@ seconds at most.

## What it costs a cluster

A look takes at most @REQUESTS@ requests, and @EACH@ to each broker, however many topics there are. It asks for the ends
and sizes of @PARTITIONS@ partitions, the offsets of @GROUPS@ groups, and @TRANSACTIONS@ open transactions; for the next
partitions and groups in the next look. The screen says so when that is not all. All topics are asked for every 5
seconds, and less often the longer that takes. Between two looks is at least the time that one takes. `--once` asks for
ten times as many, twice.
"""


def page(note: str) -> str:
    """The text of the page."""
    values = {
        "NOTE": note,
        "SCREEN": plain(draw(Views(sample()), Ui(), _WIDTH, _HEIGHT).lines).rstrip("\n"),
        "KEYS": "\n".join(f"| {keys} | {meaning} |" for keys, meaning in HELP),
        "SOURCES": "\n".join(f"| {number} | {source} |" for number, source in _SOURCES.items()),
        "SCRAPE": f"{SCRAPE_SECONDS:.0f}",
        "REQUESTS": str(REQUESTS),
        "EACH": str(REQUESTS_A_NODE),
        "PARTITIONS": f"{PARTITIONS:,}",
        "GROUPS": str(GROUPS),
        "TRANSACTIONS": str(TRANSACTIONS),
    }
    text = _PAGE
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
