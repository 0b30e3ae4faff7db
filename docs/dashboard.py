"""The dashboard for Grafana, ``monitoring/grafana/dashboards/kbroker.json``; ``make docs`` makes it from these panels.

A test looks for each metric of each expression on a node's page.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

WIDTH = 24
"""Of a row of Grafana's grid."""
HEIGHT = 8
SMALL = 4


class Panel(NamedTuple):
    """One panel: a graph, or a number if it has a ``limit`` from which on it is red."""

    title: str
    expressions: tuple[tuple[str, str], ...]
    """Expression and legend."""
    unit: str = "short"
    width: int = 8
    limit: float | None = None
    text: str = ""


def number(title: str, expression: str, limit: float, text: str = "") -> Panel:
    """A number that should be below ``limit``."""
    return Panel(title, ((expression, ""),), width=4, limit=limit, text=text)


def graph(title: str, *expressions: tuple[str, str], unit: str = "short", width: int = 8, text: str = "") -> Panel:
    """A graph of several expressions."""
    return Panel(title, expressions, unit=unit, width=width, text=text)


_JOB = 'job=~"$job"'
_NODE = f'{_JOB}, instance=~"$node"'
_RATE = "$__rate_interval"
_TOPIC = f'{_NODE}, topic=~"$topic"'
_GROUP = f'{_JOB}, consumergroup=~"$group"'
_CONSUMERS = f'{_GROUP}, topic=~"$topic"'


def _sum(metric: str) -> str:
    return f"sum({metric}{{{_JOB}}})"


def _most(metric: str) -> str:
    """The value that all controllers tell; one of them may have heard of it later."""
    return f"max({metric}{{{_JOB}}})"


def _traffic(name: str) -> tuple[str, str]:
    return f"sum by (topic) (rate(kafka_server_brokertopicmetrics_{name}_total{{{_TOPIC}}}[{_RATE}]))", "{{topic}}"


def _stage(name: str, request: str) -> tuple[str, str]:
    metric = f"kafka_network_requestmetrics_{name}timems"
    return f'max(%s{{{_NODE}, request="{request}", quantile="0.99"}})' % metric, name


_CONTROLLER = "kafka_controller"
_ELECTIONS = f"{_CONTROLLER}_controllerstats"
_STAGES = ("requestqueue", "local", "remote", "responsequeue", "responsesend")

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is it well?",
        (
            number("Nodes that do not answer", f"count(up{{{_JOB}}} == 0) or vector(0)", 1),
            number("Partitions without a leader", _most("kafka_controller_kafkacontroller_offlinepartitionscount"), 1),
            number(
                "Partitions below min.insync.replicas", _sum("kafka_server_replicamanager_underminisrpartitioncount"), 1
            ),
            number("Under-replicated partitions", _sum("kafka_server_replicamanager_underreplicatedpartitions"), 1),
            number("Log dirs that have failed", _sum("kafka_log_logmanager_offlinelogdirectorycount"), 1),
            number("Fenced brokers", _most("kafka_controller_kafkacontroller_fencedbrokercount"), 1),
        ),
    ),
    (
        "Traffic",
        (
            graph("Bytes in", _traffic("bytesin"), unit="Bps"),
            graph("Bytes out to consumers", _traffic("bytesout"), unit="Bps"),
            graph("Records in", _traffic("messagesin"), unit="cps"),
            graph(
                "Replication",
                (f"sum(rate(kafka_server_brokertopicmetrics_replicationbytesin_total{{{_NODE}}}[{_RATE}]))", "in"),
                (f"sum(rate(kafka_server_brokertopicmetrics_replicationbytesout_total{{{_NODE}}}[{_RATE}]))", "out"),
                unit="Bps",
            ),
            graph("Batches that were refused", _traffic("failedproducerequests"), unit="cps"),
            graph("Partitions that could not be read", _traffic("failedfetchrequests"), unit="cps"),
        ),
    ),
    (
        "Groups",
        (
            graph(
                "Lag in seconds",
                (
                    f"max by (consumergroup, topic) (kafka_consumergroup_lag_seconds{{{_CONSUMERS}}})",
                    "{{consumergroup}} {{topic}}",
                ),
                unit="s",
                text="Age of the oldest record that a group has not committed, where its coordinator has a replica.",
            ),
            graph(
                "Lag in records",
                (
                    f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{_CONSUMERS}}})",
                    "{{consumergroup}} {{topic}}",
                ),
            ),
            graph(
                "Open transactions that hold up read_committed",
                (
                    f'topk(10, kbroker_partition_last_stable_offset_held_seconds{{{_JOB}, topic=~"$topic"}})',
                    "{{topic}} {{partition}}: {{transactional_id}} {{producer_id}}",
                ),
                unit="s",
            ),
            graph(
                "Groups",
                (f"sum by (protocol) (kafka_server_group_coordinator_metrics_group_count{{{_JOB}}})", "{{protocol}}"),
            ),
            graph(
                "Members", (f"sum by (consumergroup) (kafka_consumergroup_members{{{_GROUP}}})", "{{consumergroup}}")
            ),
            graph(
                "Share groups: records in flight",
                (
                    f"sum by (group, topic) (kafka_server_sharepartitionmetrics_inflightmessagecount{{{_JOB}}})",
                    "{{group}} {{topic}}",
                ),
            ),
        ),
    ),
    (
        "Requests",
        (
            graph(
                "Requests",
                (
                    f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{{{_NODE}}}[{_RATE}]))",
                    "{{request}}",
                ),
                unit="reqps",
            ),
            graph(
                "Errors",
                (
                    f"sum by (request, error) (rate(kafka_network_requestmetrics_errors_total{{{_NODE}}}[{_RATE}]))",
                    "{{request}} {{error}}",
                ),
                unit="cps",
            ),
            graph(
                "Slowest requests (99%)",
                (
                    f'topk(8, max by (request) (kafka_network_requestmetrics_totaltimems{{{_NODE}, quantile="0.99"}}))',
                    "{{request}}",
                ),
                unit="ms",
            ),
            graph("Produce by stage (99%)", *(_stage(name, "Produce") for name in _STAGES), unit="ms"),
            graph("Fetch of consumers by stage (99%)", *(_stage(name, "FetchConsumer") for name in _STAGES), unit="ms"),
            graph(
                "Connections",
                (
                    f"sum by (instance, listener) (kafka_server_socket_server_metrics_connection_count{{{_NODE}}})",
                    "{{instance}} {{listener}}",
                ),
            ),
        ),
    ),
    (
        "Event loop and machine",
        (
            graph(
                "Busy share of the event loop",
                (f"1 - kafka_network_socketserver_networkprocessoravgidle_percent{{{_NODE}}}", "{{instance}}"),
                unit="percentunit",
            ),
            graph(
                "Delay of the event loop (99.9%)",
                (f'kbroker_event_loop_turn_ms{{{_NODE}, quantile="0.999"}}', "{{instance}}"),
                unit="ms",
                text="A new request waits for so long.",
            ),
            graph(
                "Processor",
                (f"rate(process_cpu_seconds_total{{{_NODE}}}[{_RATE}])", "{{instance}}"),
                unit="percentunit",
            ),
            graph("Memory", (f"process_resident_memory_bytes{{{_NODE}}}", "{{instance}}"), unit="bytes"),
            graph(
                "Read from disks: not in the page cache",
                (f"rate(kafka_server_kafkaserver_linux_disk_read_bytes{{{_NODE}}}[{_RATE}])", "{{instance}} bytes"),
                (f"rate(kbroker_record_disk_read_bytes_total{{{_NODE}}}[{_RATE}])", "{{instance}} bytes of records"),
                (f"rate(process_major_page_faults_total{{{_NODE}}}[{_RATE}])", "{{instance}} faults"),
                unit="Bps",
            ),
            graph(
                "Free space of log dirs",
                (
                    f"kbroker_log_dir_free_bytes{{{_NODE}}} / kbroker_log_dir_total_bytes{{{_NODE}}}",
                    "{{instance}} {{logDirectory}}",
                ),
                unit="percentunit",
            ),
            graph(
                "Flushes (99%)",
                (f'kafka_log_logflushstats_logflushrateandtimems{{{_NODE}, quantile="0.99"}}', "{{instance}}"),
                unit="ms",
            ),
            graph(
                "Size of logs",
                (f"topk(10, sum by (topic) (kafka_log_log_size{{{_TOPIC}}}))", "{{topic}}"),
                unit="bytes",
            ),
            graph(
                "Open files",
                (f"process_open_fds{{{_NODE}}} / process_max_fds{{{_NODE}}}", "{{instance}}"),
                unit="percentunit",
            ),
        ),
    ),
    (
        "Replication, controller and quorum",
        (
            graph(
                "Changes of ISRs",
                (f"sum(rate(kafka_server_replicamanager_isrshrinks_total{{{_NODE}}}[{_RATE}]))", "shrink"),
                (f"sum(rate(kafka_server_replicamanager_isrexpands_total{{{_NODE}}}[{_RATE}]))", "expand"),
                (f"sum(rate(kafka_server_replicamanager_failedisrupdates_total{{{_NODE}}}[{_RATE}]))", "refused"),
                unit="cps",
            ),
            graph(
                "Most records that a follower lags",
                (f"kafka_server_replicafetchermanager_maxlag{{{_NODE}}}", "{{instance}}"),
            ),
            graph(
                "Elections from outside of the ISR",
                (f"max(increase({_ELECTIONS}_uncleanleaderelections_total{{{_JOB}}}[5m]))", "unclean"),
                (f"max(increase({_ELECTIONS}_electionfromeligibleleaderreplicas_total{{{_JOB}}}[5m]))", "ELR"),
            ),
            graph(
                "Active controller",
                (f"kafka_controller_kafkacontroller_activecontrollercount{{{_NODE}}}", "{{instance}}"),
            ),
            graph("Epoch of the quorum", (f"kafka_server_raftmetrics_current_epoch{{{_NODE}}}", "{{instance}}")),
            graph(
                "Changes of the metadata: work and commit",
                (
                    f'max({_CONTROLLER}_controllereventmanager_eventqueueprocessingtimems{{{_JOB}, quantile="0.99"}})',
                    "work (99%)",
                ),
                (f"max(kafka_server_raftmetrics_commit_latency_avg{{{_JOB}}})", "commit (mean)"),
                unit="ms",
            ),
        ),
    ),
)


def render() -> str:
    """The dashboard as JSON."""
    panels: list[dict[str, Any]] = []
    y = 0
    for heading, row in ROWS:
        panels.append(
            {"type": "row", "title": heading, "collapsed": False, "panels": [], "gridPos": _place(0, y, WIDTH, 1)}
        )
        y += 1
        x = 0
        height = SMALL if row[0].limit is not None else HEIGHT
        for panel in row:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            panels.append(_panel(panel, _place(x, y, panel.width, height)))
            x += panel.width
        y += height
    for number_, panel_ in enumerate(panels, 1):
        panel_["id"] = number_
    dashboard = {
        "title": "kbroker",
        "uid": "kbroker",
        "tags": ["kafka", "kbroker"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                # All jobs are those with nodes, not everything that Prometheus scrapes.
                _variable("job", "Job", "label_values(kafka_server_raftmetrics_current_epoch, job)", every=None),
                _variable("node", "Node", f"label_values(process_start_time_seconds{{{_JOB}}}, instance)"),
                _variable("topic", "Topic", f"label_values(kafka_topic_partitions{{{_JOB}}}, topic)"),
                _variable("group", "Group", f"label_values(kafka_consumergroup_members{{{_JOB}}}, consumergroup)"),
            ]
        },
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    made = {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.expressions)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.limit is not None:
        made["type"] = "stat"
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": "green", "value": None}, {"color": "red", "value": panel.limit}],
        }
        made["options"] = {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return made


def _variable(name: str, label: str, query: str, *, every: str | None = ".+") -> dict[str, Any]:
    """A variable. ``every`` is the expression for All, which leaves out what lacks the label, such as the counts of all
    topics together; None: the values that the query gives."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": every,
        "current": {"text": "All", "value": "$__all"},
    }
