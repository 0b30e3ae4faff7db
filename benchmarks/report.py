"""Figures to tables: the figures to reach, and all that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Results = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
"""Workload -> server -> one set of figures for each round."""

UNITS = {
    "records_per_s": "records/s",
    "MB_per_s": "MB/s",
    "cpu_s_per_GB": "server CPU s/GB",
    "requests_per_s": "requests/s",
    "cpu_us_per_request": "server CPU µs/request",
    "cpu_us_per_record": "server CPU µs/record",
    "connections_per_s": "connections/s",
    "connections_per_cpu_s": "connections per second of server CPU",
    "first_decision_us": "the first decision of its kind, µs",
    "decision_us": "a decision, µs",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "max_ms": "max, ms",
    "MB": "memory, MB",
    "more_MB": "more memory, MB",
    "peak_MB": "peak memory, MB",
    "cpu_percent": "CPU, %",
    "created_s": "created and led, s",
    "first_writes_s": "first writes to all, s",
    "first_record_s": "s",
    "first_result_s": "first result, s",
    "second_topic_s": "a second topic, s",
    "query_start_s": "start of the query, s",
    "first_trigger_s": "its first trigger, s",
    "broker_cpu_in_query_s": "broker's CPU in the query, s",
    "format_s": "formatting, s",
    "mean_ms": "mean, ms",
    "connections_MB": "memory of the connections, MB",
    "restart_s": "launch to all offsets, s",
    "loaded_s": "loading them, s",
    "settled_s": "all assigned, s",
    "slowest_s": "the slowest, s",
    "transactions_per_s": "transactions/s",
    "ids_restart_s": "launch to all transactions known, s",
    "ids_failover_s": "until others know all of them, s",
    "committed_share": "share of the rate of read_uncommitted",
    "killed_s": "s",
    "silence_s": "without acknowledgements, s",
    "partition_KB": "memory of a partition, KB",
    "p99_idle_ms": "p99 without it, ms",
    "p99_growth": "growth of the p99",
    "watched_cpu_growth": "CPU of a watched request, by that of one of a node without an explorer",
    "unwatched_cpu_growth": "the same while nobody watches",
    "shown_per_s": "shown of them, per second",
    "cpu_more_percent": "more CPU with it, %",
    "cpu_more_low_percent": "more CPU with it, %, lower quartile",
    "cpu_more_high_percent": "more CPU with it, %, upper quartile",
    "cpu_more_error_percent": "more CPU with it, %, may be off by",
    "rate_less_percent": "less work a second with it and the program that reads from it, %",
    "rate_less_low_percent": "less work a second with both, %, lower quartile",
    "rate_less_high_percent": "less work a second with both, %, upper quartile",
    "rate_less_error_percent": "less work a second with both, %, may be off by",
    "control_cpu_more_percent": "control, CPU: %",
    "control_cpu_more_low_percent": "control, CPU: %, lower quartile",
    "control_cpu_more_high_percent": "control, CPU: %, upper quartile",
    "control_rate_less_percent": "control, work a second: %",
    "control_rate_less_low_percent": "control, work a second: %, lower quartile",
    "control_rate_less_high_percent": "control, work a second: %, upper quartile",
    "pairs": "pairs of slices",
    "topic_records_per_s": "records/s of the topic",
    "times_faster": "times as fast as the topic",
    "longest_lag_s": "longest lag, s",
    "end_lag_s": "lag behind the end, s",
    "cores": "cores",
    "records_per_cpu_s": "records per CPU second",
    "cpu_s_per_GB_growth": "CPU of a GB, by one node's",
    "cpu_us_per_request_growth": "CPU of a request, by one node's",
    "messages_per_s": "messages/s",
    "load_us": "the same for a partition, µs",
    "snapshot_s": "writing a snapshot, CPU s",
    "snapshot_us": "the same for a partition, µs",
    "made_us": "creating one, CPU µs",
    "failover_changes": "partitions that change with a broker",
    "failover_cpu_s": "deciding on them, CPU s",
    "failover_us": "the same for one, µs",
    "followed_s": "another broker follows, CPU s",
    "followed_us": "the same for one, µs",
    "unfenced_s": "the broker comes back, CPU s",
    "thousand_ms": "a topic of 1,000 more, CPU ms",
    "isr_ms": "one ISR, CPU ms",
    "stopping_ms": "a stopping broker's last heartbeat, CPU ms",
    "image_bytes": "memory for one, bytes",
    "snapshot_bytes": "snapshot for one, bytes",
    "all_back_us": "all brokers go and come back, CPU µs for one",
    "made_s": "all of them created, s",
    "elected_s": "controller killed -9, until there is another, s",
    "failover_s": "until its partitions are led, s",
    "back_s": "launch until all is in sync, s",
    "reckoned_cores": "cores, as reckoned",
    "reckoned_by_measured": "reckoned by measured cores",
    "reckoned_MB": "memory as reckoned, MB",
    "compaction_cpu_s_per_GB": "all CPU of the node meanwhile, s/GB",
}
MORE_IS_BETTER = frozenset(
    {
        "records_per_s",
        "records_per_cpu_s",
        "MB_per_s",
        "requests_per_s",
        "transactions_per_s",
        "connections_per_s",
        "connections_per_cpu_s",
        "committed_share",
        "topic_records_per_s",
        "times_faster",
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach: as a ratio to Apache Kafka in the same run, or as an absolute value of kbroker's."""

    workload: str
    figure: str
    reach: float
    aim: float | None
    is_ratio: bool = True


def _targets() -> Iterator[Target]:
    for partitions in (1, 6):
        kilobyte = f"produce-librdkafka-1000-p{partitions}-acks-all"
        yield Target(kilobyte, "MB_per_s", 1.3, 1.7)
        yield Target(kilobyte, "cpu_s_per_GB", 0.6, 0.4)
        small = f"produce-librdkafka-100-p{partitions}-acks-all"
        yield Target(small, "records_per_s", 1.0, 1.1)
        yield Target(small, "cpu_s_per_GB", 0.8, 0.6)
        read = f"consume-librdkafka-1000-p{partitions}"
        yield Target(read, "MB_per_s", 0.9, 1.1)
        yield Target(read, "cpu_s_per_GB", 1.5, 1.0)
        yield Target(f"consume-java-1000-p{partitions}", "MB_per_s", 0.9, 1.1)
    yield Target("latency", "p50_ms", 1.3, 1.0)
    yield Target("latency", "p99_ms", 1.0, 0.5)
    yield Target("requests", "requests_per_s", 0.7, 1.0)
    yield Target("startup", "first_record_s", 0.5, 0.17, is_ratio=False)
    yield Target("idle", "MB", 60, 35, is_ratio=False)
    yield Target("memory", "MB", 150, 80, is_ratio=False)
    yield Target("idle", "cpu_percent", 1.0, 0.2, is_ratio=False)
    yield Target("idle-connections", "cpu_percent", 1.0, None, is_ratio=False)
    yield Target("idle-connections", "more_MB", 20, None, is_ratio=False)
    yield Target("partitions", "created_s", 1.0, 0.2, is_ratio=False)
    yield Target("partitions", "first_writes_s", 1.0, 0.5)
    for protocol in ("classic", "consumer"):
        yield Target(f"rebalance-{protocol}", "mean_ms", 1.2, 1.0)
        yield Target(f"rebalance-{protocol}", "p99_ms", 1.2, 1.0)
        yield Target(f"groups-held-{protocol}", "MB", 150, None, is_ratio=False)
    yield Target("cold-start-consumer", "settled_s", 1.0, None)
    yield Target("heartbeat-requests", "requests_per_s", 0.7, 1.0)
    yield Target("offset-commit-requests", "requests_per_s", 0.7, 1.0)
    yield Target("offsets-restart", "loaded_s", 1.0, None, is_ratio=False)
    for members in (1, 10):
        yield Target(f"share-consume-{members}", "records_per_s", 1.0, None)
        yield Target(f"share-consume-{members}", "cpu_us_per_record", 0.7, None)
    yield Target("share-latency", "p99_ms", 1.0, None)
    yield Target("share-groups-held", "MB", 100, None, is_ratio=False)
    yield Target("transactions", "transactions_per_s", 2.0, 5.0)
    yield Target("committed-reading", "committed_share", 0.9, None, is_ratio=False)
    yield Target("transactional-ids", "MB", 60, None, is_ratio=False)
    yield Target("transactional-ids", "ids_restart_s", 2.0, None, is_ratio=False)
    yield Target("list-offsets", "p50_ms", 1.0, None)
    yield Target("list-offsets", "cpu_us_per_request", 150, None, is_ratio=False)
    yield Target("spark-batch-read", "records_per_s", 1.0, 1.3)
    yield Target("spark-latency", "p50_ms", 1.0, None)
    yield Target("spark-table-read", "times_faster", 5, None, is_ratio=False)
    yield Target("spark-first-batch", "first_result_s", 2.0, None, is_ratio=False)
    yield Target("spark-first-batch", "first_record_s", 0.3, None, is_ratio=False)
    yield Target("restart-large", "killed_s", 2.0, None, is_ratio=False)
    yield Target("restart-many", "killed_s", 2, None, is_ratio=False)
    yield Target("restart-many", "partition_KB", 4, None, is_ratio=False)
    for situation in (
        "compaction",
        "cold-reading",
        "connections-latency",
        "partitions-latency",
        "cluster-catching-up-latency",
    ):
        yield Target(situation, "p99_growth", 2.0, None, is_ratio=False)
        yield Target(situation, "p99_ms", 1.0, None)
    yield Target("explorer-watched", "watched_cpu_growth", 1.05, None, is_ratio=False)
    yield Target("explorer-watched", "unwatched_cpu_growth", 1.01, None, is_ratio=False)
    yield Target("explorer-same-node", "cpu_more_percent", 5, None, is_ratio=False)
    for load in ("requests", "produce"):
        yield Target(f"metrics-{load}", "cpu_more_percent", 1, None, is_ratio=False)
    yield Target("tables-follow", "longest_lag_s", 30, None, is_ratio=False)
    yield Target("tables-follow", "peak_MB", 400, None, is_ratio=False)
    yield Target("tables-follow", "cores", 1.0, None, is_ratio=False)
    yield Target("tables-backfill", "records_per_s", 300_000, None, is_ratio=False)
    yield Target("tables-producer", "rate_less_percent", 5, None, is_ratio=False)
    for nodes in (2, 4):
        yield Target(f"cores-{nodes}", "cpu_s_per_GB_growth", 1.1, None, is_ratio=False)
        yield Target(f"cores-{nodes}", "cpu_us_per_request_growth", 1.1, None, is_ratio=False)
    yield Target("cluster-produce", "MB_per_s", 1.5, 3.0)
    yield Target("cluster-produce", "cpu_s_per_GB", 0.5, 0.2)
    yield Target("cluster-latency", "p50_ms", 1.2, 0.8)
    yield Target("cluster-latency", "p99_ms", 1.0, 0.5)
    for client in ("librdkafka", "java"):
        yield Target(f"cluster-transactions-{client}", "transactions_per_s", 2.0, None)
        yield Target(f"cluster-transactions-{client}", "p99_ms", 1.0, None)
    yield Target("cluster-leader-killed", "silence_s", 3.0, 1.0, is_ratio=False)
    yield Target("cluster-controller-killed", "silence_s", 4.0, 1.5, is_ratio=False)
    yield Target("cluster-leader-stopped", "silence_s", 0.8, 0.2, is_ratio=False)
    yield Target("cluster-coordinator-killed", "ids_failover_s", 2.0, None, is_ratio=False)
    yield Target("cluster-startup", "first_record_s", 3.0, 1.0, is_ratio=False)
    yield Target("cluster-idle", "MB", 200, 120, is_ratio=False)
    yield Target("tls-produce", "MB_per_s", 1.3, None)
    yield Target("tls-produce", "cpu_s_per_GB", 0.6, None)
    yield Target("tls-consume", "MB_per_s", 1.3, None)
    yield Target("tls-requests", "requests_per_s", 0.7, 1.0)
    yield Target("tls-requests", "cpu_us_per_request", 0.8, None)
    yield Target("tls-requests-cores", "requests_per_s", 1.0, None)
    yield Target("tls-handshakes", "connections_per_cpu_s", 1.0, None)
    yield Target("acls", "decision_us", 3.0, None, is_ratio=False)
    yield Target("acls", "loaded_s", 0.3, None, is_ratio=False)
    for situation in ("tls-storm", "tls-storm-handshakes"):
        yield Target(situation, "p99_growth", 2.0, None, is_ratio=False)


TARGETS = tuple(_targets())

WHY_MISSED: Mapping[tuple[str, ...], str] = {
    ("connections-latency",): "A hundredth of a millisecond: as much as two rounds differ.",
    ("cold-reading",): (
        "The readers' threads wait 1.1 ms for one of two processors, the node's loop 0.06 ms. Tried: sending in "
        "pieces, reading ahead in pieces, shorter slices of the scheduler ([limits](architecture/limits.md))."
    ),
    ("partitions-latency",): (
        "kbroker makes and deletes the five topics in one second, Apache Kafka in ten or more: the same work is done "
        "in a tenth of the time. Partitions are made 6 in a turn of the loop."
    ),
    ("explorer-watched", "explorer-same-node"): (
        "One round. What is noted of each request takes about a microsecond, beside twelve that the request takes. Not "
        "looked into."
    ),
    ("cluster-catching-up-latency",): (
        "Three nodes, the copying and the client share two processors; what grows is half a millisecond."
    ),
    ("tables-producer",): "The producer, the node and the program that writes the table share two processors.",
    ("cores-2", "cores-4"): (
        "Likely, not shown: the same 100 connections are spread over the nodes, so that a round of each poller finds "
        "fewer requests, and the nodes share two processors with the load "
        "([decision 32](decisions/0032-a-node-for-each-core.md))."
    ),
    ("transactions",): (
        "The aim was set beside a JVM in its first seconds. A commit is five requests, one after another."
    ),
    ("tls-requests", "tls-requests-cores"): (
        "One loop encrypts, where Apache Kafka has three threads for it: a request costs as much processor time, and "
        "one processor is full. What TLS costs, and what was tried to save of it: [TLS](architecture/tls.md)."
    ),
    ("tls-produce",): (
        "Clients cut a batch into many small records of TLS, each of which OpenSSL gives by a call of its own. The "
        "node is woken for 128 KiB of them ([TLS](architecture/tls.md))."
    ),
    ("tls-storm", "tls-storm-handshakes"): (
        "The clients' half of the handshakes, the thread that makes the node's, its loop and the client that is "
        "measured share two processors; a node without a part in them has half of that p99. Tried: a thread of the "
        "lowest priority, letting clients in by single steps, accepting in turn ([TLS](architecture/tls.md))."
    ),
}
"""For workloads that miss figures: what was tried, and what the limit is."""


def median(results: Results, workload: str, server: str, figure: str) -> float | None:
    """Median over the rounds; None where nothing was measured."""
    values = [figures[figure] for figures in results.get(workload, {}).get(server, ()) if figure in figures]
    return statistics.median(values) if values else None


def reference(results: Results) -> str:
    """The server that kbroker is compared with: ``apache``, or ``before`` when that was measured."""
    return "before" if any("before" in servers for servers in results.values()) else "apache"


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """kbroker's figure over the reference's; None where one is missing or nothing."""
    return None if ours is None or not theirs else ours / theirs


def verdict(target: Target, value: float | None, error: float | None = None) -> str:
    """`aim`, `reached`, `MISSED`, `not measured`, or `not shown` where the value may be off by more than it is away."""
    if value is None:
        return "not measured"
    if error is not None and abs(value - target.reach) < error:
        return "not shown"
    sign = 1 if target.figure in MORE_IS_BETTER else -1
    if target.aim is not None and sign * value >= sign * target.aim:
        return "aim"
    return "reached" if sign * value >= sign * target.reach else "MISSED"


def shown(value: float | None) -> str:
    """Three significant digits, thousands separated."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratios(results: Results, workload: str, figure: str) -> list[float]:
    """Of each round: the two brokers had their turns one after the other, while the machine was as fast as it was."""
    servers = ("kbroker", reference(results))
    rounds = zip(*(results.get(workload, {}).get(server, ()) for server in servers), strict=False)
    found = (ratio(ours.get(figure), theirs.get(figure)) for ours, theirs in rounds)
    return [value for value in found if value is not None]


def median_ratio(results: Results, workload: str, figure: str) -> float | None:
    """Median over the rounds; None where no round has both."""
    values = ratios(results, workload, figure)
    return statistics.median(values) if values else None


def rounds_of(results: Results, workload: str, figure: str, commits: Mapping[str, str] | None = None) -> str:
    """The rounds that a median is of: their number, their commit, and the span of their ratios.

    The commit is named if ``commits`` has several; the span, least and greatest, if there are several ratios.
    """
    count = max(len(rounds) for rounds in results[workload].values())
    values = ratios(results, workload, figure)
    told = f"{count} of {commits[workload]}" if commits and len(set(commits.values())) > 1 else str(count)
    return f"{told}: {min(values):.2f} to {max(values):.2f}" if len(values) > 1 else told


class Judged(NamedTuple):
    """A target, what was measured of it, and the verdict."""

    target: Target
    ours: float | None
    theirs: float | None
    relative: float | None
    verdict: str


def judged(results: Results) -> Iterator[Judged]:
    """Yields every target of which anything was measured."""
    for target in TARGETS:
        ours = median(results, target.workload, "kbroker", target.figure)
        theirs = median(results, target.workload, reference(results), target.figure)
        if ours is None and theirs is None:
            continue
        relative = median_ratio(results, target.workload, target.figure)
        error = median(results, target.workload, "kbroker", f"{target.figure.removesuffix('_percent')}_error_percent")
        yield Judged(target, ours, theirs, relative, verdict(target, relative if target.is_ratio else ours, error))


def target_rows(
    results: Results, titles: Mapping[str, str], commits: Mapping[str, str] | None = None
) -> list[list[str]]:
    """Rows for every target of which anything was measured."""
    rows = []
    for target, ours, theirs, relative, said in judged(results):
        sign, mark = ("≥" if target.figure in MORE_IS_BETTER else "≤"), " x" if target.is_ratio else ""
        aim = "" if target.aim is None else f"{sign} {target.aim:g}{mark}"
        rows.append(
            [
                f"{titles[target.workload]}: {UNITS[target.figure]}",
                shown(theirs),
                shown(ours),
                "-" if relative is None else f"{relative:.2f} x",
                f"{sign} {target.reach:g}{mark}",
                aim,
                said,
                rounds_of(results, target.workload, target.figure, commits),
            ]
        )
    return rows


def why_missed(results: Results, titles: Mapping[str, str]) -> str:
    """Returns a list, in Markdown, of what is known of each workload that misses a figure; nothing where none does."""
    missed = {each.target.workload for each in judged(results) if each.verdict == "MISSED"}
    lines = [
        f"- {'; '.join(titles[name] for name in names if name in missed)}. {why}"
        for names, why in WHY_MISSED.items()
        if missed & set(names)
    ]
    return "\n## What was tried, and the limit\n\n" + "\n".join(lines) + "\n" if lines else ""


TARGET_HEADINGS = ["", "Apache Kafka", "kbroker", "ratio", "to reach", "aim", "", "rounds: ratios"]


def all_rows(results: Results, titles: Mapping[str, str], commits: Mapping[str, str] | None = None) -> list[list[str]]:
    """Rows for every figure that was measured."""
    rows = []
    for workload, servers in results.items():
        names = list(dict.fromkeys(name for rounds in servers.values() for figures in rounds for name in figures))
        for figure in names:
            ours = median(results, workload, "kbroker", figure)
            theirs = median(results, workload, reference(results), figure)
            relative = median_ratio(results, workload, figure)
            rows.append(
                [
                    f"{titles[workload]}: {UNITS[figure]}",
                    shown(theirs),
                    shown(ours),
                    "-" if relative is None else f"{relative:.2f} x",
                    rounds_of(results, workload, figure, commits),
                ]
            )
    return rows


ALL_HEADINGS = [*TARGET_HEADINGS[:4], TARGET_HEADINGS[-1]]


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """For a terminal: the first column to the left, figures to the right."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]

    def line(row: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *rest]).rstrip()

    return "\n".join([line(headings), "-" * (sum(widths) + 2 * len(widths) - 2), *map(line, rows)])


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """For the documentation."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, rule, *rows))


def joined(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join runs: rounds of one commit add up; of a workload that several commits ran, the last one counts.

    A run may be one that was joined before.

    ``ValueError`` where they cannot be told as one.
    """
    if any(run.get("cut_short") for run in runs):
        raise ValueError("a run was cut short")
    for what in ("quick", "apache_kafka", "client"):
        if len({run[what] for run in runs}) > 1:
            raise ValueError(f"the runs differ in {what}")
    whole = dict(runs[-1])
    whole["date"] = ", ".join(run["date"] for run in runs)
    whole["commits"] = {name: _commit(run, name) for run in runs for name in run["results"]}
    whole["commit"] = ", ".join(dict.fromkeys(whole["commits"].values()))
    whole["machine"] = {**runs[-1]["machine"], "busy_percent": max(run["machine"]["busy_percent"] for run in runs)}
    whole["failures"] = [
        failure
        for number, run in enumerate(runs)
        for failure in run["failures"]
        if not any(failure.split(" ")[0] in later["results"] for later in runs[number + 1 :])
    ]
    results: dict[str, dict[str, list[Mapping[str, float]]]] = {}
    for run in runs:
        for name, servers in run["results"].items():
            if _commit(run, name) == whole["commits"][name]:
                for kind, rounds in servers.items():
                    results.setdefault(name, {}).setdefault(kind, []).extend(rounds)
    whole["results"] = results
    whole["seconds_of_round"] = {name: each for run in runs for name, each in run.get("seconds_of_round", {}).items()}
    return whole


QUIET_PERCENT = 5
"""Percent of all processors that others may take before a run on a quiet machine."""


def _commit(run: Mapping[str, Any], workload: str) -> str:
    return str(run.get("commits", {}).get(workload, run["commit"]))


def _several(commits: Mapping[str, str] | None) -> str:
    several = len(set((commits or {}).values())) > 1
    return " Rows of another commit are of another run, perhaps on a faster or slower machine." if several else ""


def _not_run(results: Results, titles: Mapping[str, str]) -> str:
    names = [name for name in titles if name not in results and not name.endswith("warm-up")]
    return f" Not run: {', '.join(f'`{name}`' for name in names)}." if names else ""


def document(report: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """`docs/benchmarks.md` from a report as it was written to JSON."""
    machine, results, commits = report["machine"], report["results"], report.get("commits")
    quick = " A quick run: fewer records, one round." if report["quick"] else ""
    if machine["busy_percent"] > QUIET_PERCENT:
        quick += " The machine was NOT quiet before the run: take the figures as provisional."
    days = ", ".join(dict.fromkeys(time[:10] for time in report["date"].split(", ")))
    failures = "".join(f"\n- {line}" for line in report["failures"])
    return f"""# Benchmarks

Generated by `python -m benchmarks --all` (`make bench ARGS=--all`) from one run, or from a few with `--render`;
do not edit by hand. [Comparison](comparison.md) has kfake and librdkafka's mock cluster, too.

kbroker and Apache Kafka {report["apache_kafka"]} ran side by side on loopback with their stock settings
(but for two, which `benchmarks/servers.py` names), and each workload was run on one and then on the other, in turn, as
many rounds as the last column says. Figures are medians over the rounds. So are the ratios, each of one round, as
machines may change their speed from round to round: a ratio need not be that of the two figures beside it. The last
column has the least and the greatest one.{quick}
The load came from stock clients: {report["client"]} in a C loop, and the Java client {report["apache_kafka"]}
(`kafka-producer-perf-test`, and a consumer with assigned partitions). Acknowledged records were counted in the
topic afterwards.

- {days}, commit `{report["commit"]}`, Python {machine["python"]}
- {machine["processors"]} processors ({machine["model"]}), {machine["memory_GB"]} GB, {machine["system"]}
- the processors were busy before the run: {machine["busy_percent"]:.1f} %

MB are 10^6 bytes of record values. CPU is the broker's own user and system time. Memory is resident memory.
A ratio is kbroker's figure over Apache Kafka's.{_several(commits)}{_not_run(results, titles)}

## Figures to reach

What is missed comes first.

{markdown_table(TARGET_HEADINGS, sorted(target_rows(results, titles, commits), key=lambda row: row[6] != "MISSED"))}
{why_missed(results, titles)}
## All figures

{markdown_table(ALL_HEADINGS, all_rows(results, titles, commits))}
{f"{chr(10)}## What failed{chr(10)}{failures}{chr(10)}" if failures else ""}"""
