"""docs/metrics.md: how a node's metrics are read, and the table of all of them."""

from __future__ import annotations

from kbroker.observe.metrics.absent import ABSENT
from kbroker.observe.metrics.catalogue import all_families
from kbroker.observe.metrics.dialect import Dialect

_BEGIN = """\
A node shows its metrics to [Prometheus](https://prometheus.io) if it is told where:

```console
$ pip install 'kbroker[metrics]'
$ kbroker start --metrics 9404 &
$ curl -s http://127.0.0.1:9404/metrics | grep bytesin
```

In a properties file that is `prometheus.metrics.reporter.listener=http://127.0.0.1:9404`, the property of
Strimzi's Metrics Reporter. Without it nothing is counted, imported or served. Whoever reaches the page reads
the names of topics, groups, clients and log directories. It is on the loopback interface unless another host
is given, and it asks nobody for a password.

| Path | Answer |
| --- | --- |
| `/metrics` | all metrics; `?dialect=confluent` or `?dialect=reporter` for other names |
| `/health` | 200 while the event loop turns; while logs are opened it tells how many are left |
| `/ready` | 200 when the node serves clients, 503 and the reason before and after |

Kafka has names for its metrics, and each exporter makes others of them. Dashboards go by one exporter:
"""

_MIDDLE = """
A test takes the names from their published dashboards and looks for each. kafka-exporter's names are there,
too, so one scrape of each node replaces it. Scrape every node: each shows what it leads and coordinates.
What the metadata tell of the cluster is on each controller, as with Apache Kafka: not to be added up, but for
`activecontrollercount`. A controller that is cut off from the quorum and still scraped shows what it knew last: the
alerts, which take `max by (job)`, stay up by its stale figures until it is back, or is not scraped any more.
Rates and means (`..._rate`, `..._avg`) are those since the last scrape: of several scrapers each gets a part.
Counters begin at 0 with the node. A Fetch is counted as `Fetch` and as `FetchConsumer` or `FetchFollower`.
The dialect `confluent` has the names of labels in lower case, as Confluent's rules do.

With `kbroker start --cores` the page of the first node has the values of all nodes of the machine, with a label
`node` that is a node's id: scrape that page alone. A node that does not answer within five seconds is left out, and
`kbroker_other_node_up` is 0 for it. `?alone=1` has the first node's own, without the label, as `kbroker top` takes it;
the others' own pages are at the ports after it.

Published dashboards also select by the labels of the place that they were made for, such as a namespace of
Kubernetes. [Jobs for Prometheus](works_with.md#prometheus) that add them are among the recipes.

## Grafana, Prometheus and alerts

The repository has a dashboard for Grafana, `monitoring/grafana/dashboards/kbroker.json`, and alerts for
Prometheus, `monitoring/prometheus/alerts.yml`: partitions without a leader, below `min.insync.replicas` or
under-replicated, an abnormal number of controllers, failed log directories, disk space, lag in seconds, hanging
transactions. Both use the default dialect. Where a Prometheus scrapes several clusters, give each a job of its own
whose name begins with `kbroker`: the dashboard asks for the job, and alerts are raised for each. To see them with three
nodes:

```console
$ docker compose --profile metrics up --build
```

Grafana is on <http://localhost:3000>, Prometheus on <http://localhost:9090>. Tests look for each metric of
the dashboard and of the alerts on a node's page, and check the files of the profile against one another.
[A test](works_with.md#prometheus) that runs on demand builds a Prometheus, which scrapes three nodes. It evaluates
every query of the dashboard while clients work, and raises the alerts:

```console
$ make works-with ONLY=compat_tests/works_with/prometheus
```

No test starts Grafana, so there is no picture of the dashboard here.

## Requests by stage

Every request is counted. Times are taken of some: of one in 32, of the first 8 of each connection, of the
first 64 of each API whose handler may wait, and of one in 16 turns of the event loop, also where
[a shortcut](architecture/requests.md) serves it. To take the times of all would cost up to a tenth of their work.
Quantiles are of recent ones, as half of what was observed is forgotten at each scrape. A `_count` has all requests.

There is one event loop, and there are no queues of requests between threads. The stages are these:

| Stage | Time |
| --- | --- |
| `requestqueue` | from the begin of the loop's turn to that of the request's work: others are served first |
| `local` | work on the loop: decode, serve, encode |
| `remote` | the rest until the response is complete: wait for followers, coordinators, records, others' turns |
| `responsequeue` | until its first byte is offered to the socket: wait for earlier responses of its connection |
| `responsesend` | until the socket has taken all of it, and what is queued behind it |
| `total` | the sum |

Bytes that arrive while the loop is at work have waited before `requestqueue` begins, for as long as
`kbroker_event_loop_turn_ms` at most.

## What it costs

By instructions of the node's own code: a small Produce of one of 100 busy connections costs 0.5% more with
metrics (70,000 instructions without), and a connection that makes one small request at a time, each in a turn of
the loop of its own, 5,000 instructions for each. Large requests bear the same additions: for 100 MB from
librdkafka that is less than a thousandth of the node's processor time. `python -m benchmarks --only 'metrics-*'`
compares a node that is scraped with two that have no metrics, on a quiet machine. By the clock a small
machine cannot tell: launches of the same node differ by 10% there. Twelve of each said 12% more, give or take 16%;
eleven, in slices of 0.2 s in turn, 2.3% more, and 1.4% for a second node without metrics. Without the
property nothing of this runs. With it requests are counted from the start on, whether or not anybody scrapes: a
counter tells of all that has been.

## Lag

A group's coordinator tells its lag: for each partition, and for each topic that it has committed offsets for
(`kafka_consumergroup_lag_sum`). Where the coordinator has no replica of a partition, as with more brokers than
replicas, a scrape asks the leader for the high watermark: no longer than a second, of 20,000 partitions at most,
and not again within five seconds. Without an answer the last one counts for half a minute; then the lag is missing,
and the sum with it.

## Lag in seconds

`kafka_consumergroup_lag_seconds` is the age of the oldest record that a group has not committed: the seconds
between the timestamp of that record's batch and the node's clock. All records of a batch count as old as its
first one; with `message.timestamp.type=LogAppendTime` they have one time. It is 0 when everything below the
high watermark is committed, so that it does not grow while nobody writes. A group that reads and does not
commit is behind.

Where the group is behind, the batch is looked up in the coordinator's replica of the partition. A scrape spends a tenth
of a second on look-ups at most; where that did not suffice, the value is missing until one of the next scrapes. What a
scrape has found is kept until the committed offset changes.

Where the coordinator has no replica of the partition, the value is missing unless it is 0: a node asks others for
ends of logs, not for records. With as many replicas as brokers each node knows all. With fewer, the dashboard's lag
in seconds and the alert that goes by it speak of the partitions that are known. `kafka_consumergroup_lag`, in
records, has the others, and [`kbroker top`](top.md) looks their records up at their leaders.

`kbroker_partition_last_stable_offset_held_seconds` names the producer whose open transaction holds up
consumers with `read_committed`, and has the age of the transaction's first batch in the partition. The
transactional id is there where this node coordinates it.

## Clients' metrics

A broker with this page receives [clients' metrics](telemetry.md) (KIP-714): what clients push is on the page,
in any dialect, under their own names with underscores, with the labels `client_id` and `client_instance_id`.
No client is asked for any before there is a subscription. Sums that a client counts from push to push are
added up. At most 1,000 clients, 2,000 series of each and 50,000 of all are shown;
`kbroker_client_metrics_dropped_total` counts the values beyond that. A client that has not pushed for three of
its intervals, and a minute at least, is forgotten. Names that begin with `kafka_`, `kbroker_` or `process_`
are the node's own.

## OpenTelemetry

A node sends its metrics nowhere. OpenTelemetry's collector scrapes the page: its receiver `prometheus` takes jobs as
they stand in a file of Prometheus. Metrics keep the page's names.

```yaml
receivers:
  prometheus:
    config:
      scrape_configs:
        - job_name: kbroker
          static_configs:
            - targets: [localhost:9404]
exporters:
  otlphttp:
    endpoint: http://localhost:4318
service:
  pipelines:
    metrics:
      receivers: [prometheus]
      exporters: [otlphttp]
```

No test runs a collector; one runs [a Prometheus](works_with.md#prometheus), whose scraping the receiver is.

## What there is

| Name (strimzi) | Other names | Labels | Meaning |
| --- | --- | --- | --- |
"""

_END = """
## What dashboards ask for and a node does not have

Panels of these stay empty, as those of the Java virtual machine (`jvm_...`) do.

| Names | Why not |
| --- | --- |
"""


def page(note: str) -> str:
    """The text; ``note`` says that it is generated."""
    parts = ["# Metrics\n\n", f"{note}\n", _BEGIN, "\n"]
    parts += [f"- `{dialect}`: {dialect.explanation}\n" for dialect in Dialect]
    parts.append(_MIDDLE)
    for family in all_families():
        first, *others = (family.names[dialect] for dialect in Dialect)
        different = ", ".join(dict.fromkeys(_cell(name) for name in others if name != first))
        labels = ", ".join(_cell(label) for label in family.labels)
        parts.append(f"| {_cell(first)} | {different} | {labels} | {family.help} |\n")
    parts.append(_END)
    parts += [f"| {', '.join(_cell(name) for name in names)} | {reason} |\n" for reason, names in ABSENT.items()]
    return "".join(parts)


def _cell(name: str) -> str:
    return f"`{name}`"
