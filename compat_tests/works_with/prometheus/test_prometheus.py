"""Prometheus scrapes three nodes: every query of the dashboard and every alert is evaluated, while clients work and
while a node is down; promtool reads the rules and the pages."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.brokers import Broker, ExternalBroker
from compat_tests.conftest import LONG_LOCKS
from compat_tests.share_groups.members import ConfluentMembers
from compat_tests.share_groups.steps import configure
from compat_tests.works_with.conftest import NODES
from compat_tests.works_with.judge import create_topics, write
from compat_tests.works_with.program import Program
from compat_tests.works_with.prometheus.grafana import Dashboard
from compat_tests.works_with.prometheus.server import Prometheus, Series
from compat_tests.works_with.running import wait_until
from kbroker.config.listeners import METRICS_LISTENER
from kbroker.observe.metrics.absent import ABSENT
from kbroker.observe.metrics.catalogue import all_families
from kbroker.observe.metrics.dialect import Dialect
from kbroker.testing import RunningCluster
from kbroker.tools.cli.cluster_plan import free_ports
from tests.metrics.expressions import ALERTS, DASHBOARD, ROOT, metric_names
from tests.metrics.published_metric_names import PUBLISHED
from tests.node.metrics_pages import ask
from tests.patience import LONG, SHORT

CONFIG = ROOT / "monitoring/prometheus/prometheus.yml"
TAGS = "remove_all_sd"
"""Leave out the means of finding targets that need other programs' packages."""
TOOL, SERVER = (f"github.com/prometheus/prometheus/cmd/{name}" for name in ("promtool", "prometheus"))
FIRST, RECORDS, VALUE = 300, 3000, "x" * 100
RATE_SECONDS = 600
JOB = "kbroker"
NAMESPACES = {"strimzi": "kafka", "reporter": "kafka-reporter"}
"""By the directory of published dashboards, as published.yml has them."""
JOBS = {
    Dialect.STRIMZI: ("kbroker", "strimzi"),
    Dialect.REPORTER: ("strimzi-reporter",),
    Dialect.CONFLUENT: ("kafka-broker", "kafka-controller"),
}


@pytest.fixture(scope="module")
def promtool(program: Program) -> Path:
    if shutil.which("go") is None:
        pytest.skip("needs Go, by which Prometheus is built")
    return program.binary(TOOL, TAGS)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """Three nodes whose pages are on the same ports after a restart."""
    if request.config.getoption("--broker") == "apache":
        pytest.skip("Apache Kafka has no page for Prometheus")
    name, _, value = LONG_LOCKS.partition("=")
    it = RunningCluster(NODES, {name: value})
    for node, port in zip(it.nodes, free_ports(NODES), strict=True):
        with node.data_dir.with_name(f"{node.data_dir.name}.properties").open("a") as file:
            file.write(f"{METRICS_LISTENER}=http://127.0.0.1:{port}\n")
    with it:
        yield it


@pytest.fixture(scope="module")
def broker(cluster: RunningCluster) -> Broker:
    return ExternalBroker(cluster.bootstrap_servers)


def port_of(cluster: RunningCluster, node_id: int) -> int:
    """The port of a node's page."""
    found = re.findall(r"metrics are on http://127\.0\.0\.1:(\d+)/metrics", cluster.node(node_id).log)
    return int(found[-1])


@pytest.fixture(scope="module")
def prometheus(
    program: Program, promtool: Path, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus with the repository's configuration, the recipe's jobs, and rules that wait for a second."""
    directory = tmp_path_factory.mktemp("prometheus")
    ports = {node.id: port_of(cluster, node.id) for node in cluster.nodes}
    targets = json.dumps([f"127.0.0.1:{port}" for port in ports.values()])
    config = re.sub(r"evaluation_interval: \d+s", "evaluation_interval: 5s", CONFIG.read_text("utf-8"))
    config = re.sub(r"targets: \[.*\]", f"targets: {targets}", config).replace("/etc/prometheus/", "")
    (directory / "prometheus.yml").write_text(f"{config}scrape_config_files: [published.yml]\n", "utf-8")
    (directory / "alerts.yml").write_text(re.sub(r"for: \d+[smh]", "for: 1s", ALERTS.read_text("utf-8")), "utf-8")
    shutil.copy(program.file("published.yml"), directory)
    nodes = [{"targets": [f"127.0.0.1:{port}"], "labels": {"node": str(node)}} for node, port in ports.items()]
    (directory / "nodes.json").write_text(json.dumps(nodes), "utf-8")
    subprocess.run([promtool, "check", "config", directory / "prometheus.yml"], check=True)
    it = Prometheus(program.binary(SERVER, TAGS), directory / "prometheus.yml", directory)
    try:
        it.await_ready()
        yield it
    finally:
        it.running.kill()


def joined(bootstrap: str, group: str, topic: str, partitions: int) -> Consumer:
    """A member of a group that has all partitions of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "max.poll.interval.ms": 3_600_000,
        }
    )
    consumer.subscribe([topic])
    wait_until(
        lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == partitions, f"{group} to have {topic}", 180
    )
    return consumer


@pytest.fixture(scope="module")
def work(broker: Broker, cluster: RunningCluster) -> Iterator[None]:
    """Clients of each kind: a group that is behind, an open transaction, a share group with records in flight, and a
    producer that is refused."""
    bootstrap = broker.bootstrap
    create_topics(bootstrap, {"orders": 3, "payments": 1, "jobs": 1})
    write(bootstrap, "orders", [(str(number), VALUE) for number in range(FIRST)])
    configure(broker, "workers", auto_offset_reset="earliest", record_lock_duration_ms="600000")
    write(bootstrap, "jobs", [(None, "job")])
    workers = ConfluentMembers(bootstrap)
    member = joined(bootstrap, "billing", "orders", 3)
    payer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "payer", "transaction.timeout.ms": 15 * 60_000}
    )
    try:
        workers.join("one", "workers", "jobs")
        wait_until(lambda: bool(workers.poll("one")), "a job", 180)
        payer.init_transactions(LONG)
        payer.begin_transaction()
        payer.produce("payments", "100")
        assert payer.flush(LONG) == 0
        member.commit(offsets=[TopicPartition("orders", number, 0) for number in range(3)], asynchronous=False)
        assert refusal(bootstrap, "orders") == KafkaError.MSG_SIZE_TOO_LARGE
        yield
    finally:
        workers.end()
        member.close()
        payer.abort_transaction(LONG)


def refusal(bootstrap: str, topic: str) -> int:
    """The code of the error with which a batch is refused that is too large."""
    errors: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 3_000_000})
    producer.produce(
        topic, b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error.code() if error is not None else 0)
    )
    producer.flush(LONG)
    return errors[0]


# --- promtool -------------------------------------------------------------------------------------------------------


def run(*command: str | Path) -> str:
    """The answer of promtool to something that is right."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_promtool_finds_the_configuration_and_the_rules_right(promtool: Path) -> None:
    run(promtool, "check", "config", "--syntax-only", CONFIG)
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", ALERTS)


def test_each_alert_fires_when_it_is_time(promtool: Path, program: Program, seen: Callable[..., None]) -> None:
    """In a time of promtool's own, by series that are written down: the rules as they are, with their durations."""
    tests = program.folder / "alerts_test.yml"
    run(promtool, "test", "rules", tests)
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text("utf-8"))
    fired = set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels", tests.read_text("utf-8")))
    quiet = set(re.findall(r"alertname: (\w+)\n +exp_alerts: \[\]", tests.read_text("utf-8")))
    assert fired == quiet == set(alerts)
    seen(f"each of the {len(alerts)} alerts fires by series that are made up, after its own time, and not before")


OF_EXPORTERS = (
    'non-summary metrics should not have "quantile" label',
    'non-histogram and non-summary metrics should not have "_count" suffix',
    'non-histogram and non-summary metrics should not have "_sum" suffix',
    "label names should be written in 'snake_case' not 'camelCase'",
    "metric names should not contain abbreviated units",
)
"""Objections of promtool to the pages, whose names, labels and types are those that Kafka's exporters give them."""


@pytest.mark.parametrize("dialect", Dialect)
def test_promtool_reads_the_pages(promtool: Path, cluster: RunningCluster, work: None, dialect: Dialect) -> None:
    for node in cluster.nodes:
        status, page = ask(port_of(cluster, node.id), f"/metrics?dialect={dialect}")
        assert status == 200
        done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
        assert done.returncode == 3, done.stderr  # it was read, and something was said
        said = {line.split(" ", 1)[1] for line in done.stderr.splitlines()}
        assert said and said <= set(OF_EXPORTERS)


# --- the dashboard --------------------------------------------------------------------------------------------------


def by(found: list[Series], **labels: str) -> float:
    """The value of the series with these labels."""
    (series,) = [each for each in found if labels.items() <= each.labels.items()]
    return series.value


def test_every_query_of_the_dashboard_tells_what_happens(
    prometheus: Prometheus, broker: Broker, work: None, seen: Callable[..., None]
) -> None:
    bootstrap = broker.bootstrap
    create_topics(bootstrap, {"measured": 3})
    write(bootstrap, "measured", [(str(number), VALUE) for number in range(FIRST)])
    counted = f'kafka_server_brokertopicmetrics_messagesin_total{{job="{JOB}", topic="measured"}}'
    prometheus.until(lambda: prometheus.total(counted) == FIRST, "to count the first records")
    member = joined(bootstrap, "readers", "measured", 3)
    try:
        write(bootstrap, "measured", [(str(number), VALUE) for number in range(RECORDS)])
        places = [TopicPartition("measured", number) for number in range(3)]
        ends = [member.get_watermark_offsets(place, timeout=LONG)[1] for place in places]
        done = [TopicPartition("measured", number, end // 3) for number, end in enumerate(ends)]
        member.commit(offsets=done, asynchronous=False)
        left = sum(end - end // 3 for end in ends)
        lag = f'kafka_consumergroup_lag{{job="{JOB}", consumergroup="readers"}}'
        prometheus.until(lambda: prometheus.total(counted) == FIRST + RECORDS, "to count all records")
        prometheus.until(lambda: prometheus.total(lag) == left, "to tell the lag")
        flight = f'kafka_server_sharepartitionmetrics_inflightmessagecount{{job="{JOB}"}}'
        prometheus.until(lambda: prometheus.total(flight) == 1, "to tell what is in flight")

        dashboard = Dashboard(DASHBOARD, prometheus, {"job": JOB}, f"{RATE_SECONDS}s")
        assert not dashboard.empty
        now = time.time()
        prometheus.infos.clear()
        answers: dict[str, list[Series]] = {}
        queries = list(dashboard.queries())
        for panel, expression, is_graph in queries:
            found = prometheus.query(expression, now)
            assert found, f"{panel}: {expression} finds nothing"
            assert all(math.isfinite(each.value) and each.value > -0.01 for each in found), f"{panel}: {found}"
            if is_graph:
                assert prometheus.query_range(expression, now - 300, now, 5), panel
            answers.setdefault(panel, []).extend(found)
        samples = prometheus.query(f"{counted}[{RATE_SECONDS}s]", now)
    finally:
        member.close()
    rate = by(answers["Records in"], topic="measured")
    grown = [(each.value - each.points[0][1], each.points[-1][0] - each.points[0][0]) for each in samples]
    assert RECORDS <= sum(records for records, _ in grown) <= rate * RATE_SECONDS
    assert rate <= sum(records / seconds for records, seconds in grown)
    assert {each.labels.get("topic") for each in answers["Records in"]} >= {"measured", "orders"}
    assert all(each.labels.get("topic") for each in answers["Records in"]), "the sum of all topics is no topic"
    assert by(answers["Bytes in"], topic="measured") > rate * len(VALUE)
    assert by(answers["Lag in records"], consumergroup="readers", topic="measured") == left
    assert by(answers["Lag in seconds"], consumergroup="readers", topic="measured") > 0
    assert by(answers["Members"], consumergroup="readers") == by(answers["Members"], consumergroup="billing") == 1
    assert by(answers["Share groups: records in flight"], group="workers", topic="jobs") == 1
    assert by(answers["Errors"], request="Produce", error="MESSAGE_TOO_LARGE") >= 0
    assert by(answers["Open transactions that hold up read_committed"], topic="payments") > 0
    assert sum(each.value for each in answers["Active controller"]) == 1
    assert by(answers["Groups"], protocol="classic") == 2 and by(answers["Groups"], protocol="share") == 1
    wrong = [panel for panel, _, is_graph in queries if not is_graph and [each.value for each in answers[panel]] != [0]]
    assert not wrong, "all is well"
    assert all("linux_disk_read_bytes" in info for info in prometheus.infos), "Kafka's name for a count of bytes"
    seen(
        f"each of the dashboard's {len(queries)} queries found something, while clients wrote, read, lagged in a "
        "group, held a transaction open, worked in a share group and were refused",
        f"the rate of {RECORDS} records, a lag of {left}, members, open transaction, records in flight are what the "
        "clients did",
    )


def test_prometheus_takes_what_published_dashboards_ask_for(
    prometheus: Prometheus, work: None, seen: Callable[..., None]
) -> None:
    absent = {name for names in ABSENT.values() for name in names}
    for dialect, jobs in JOBS.items():
        for job in jobs:

            def has_all(dialect: Dialect = dialect, job: str = job) -> bool:
                names = set(prometheus.label_values("__name__", f'{{job="{job}"}}'))
                return PUBLISHED[dialect] - absent <= names

            prometheus.until(has_all, f"to have the names of {job}")
    assert {health for _, health, _ in prometheus.targets()} == {"up"}
    # Rates need two scrapes.
    prometheus.until(
        lambda: not published(prometheus)[1], "to answer each query of the dashboards in KBROKER_DASHBOARDS"
    )
    answered, _ = published(prometheus)
    seen("the names that published dashboards ask for are there in each of the three dialects")
    if answered:
        seen(f"{len(answered)} queries of Strimzi's and Confluent's published dashboards found something")


def published(prometheus: Prometheus) -> tuple[list[str], list[str]]:
    """The queries of the dashboards in KBROKER_DASHBOARDS whose metrics a node has: those that find something, and
    those that do not."""
    known = {name for family in all_families() for name in family.names.values()}
    answered: list[str] = []
    empty: list[str] = []
    for path in sorted(Path(os.environ.get("KBROKER_DASHBOARDS", os.devnull)).rglob("*.json")):
        dashboard = Dashboard(path, prometheus, {"kubernetes_namespace": NAMESPACES.get(path.parent.name, "")})
        for panel, expression, _ in dashboard.queries():
            found = prometheus.query(expression)
            names = metric_names(expression)
            selects_all_as_one = '="(' in expression  # an equality with the expression for all values
            if names and names <= known and not selects_all_as_one:
                (answered if found else empty).append(f"{path.stem}: {panel}: {expression}")
    return answered, empty


# --- a node is down -------------------------------------------------------------------------------------------------

OF_A_LOST_NODE = {"KafkaNodeDown", "OfflinePartitions", "UnderReplicatedPartitions", "FencedBroker"}


def test_a_node_that_is_down_is_seen_and_raises_alerts(
    prometheus: Prometheus, cluster: RunningCluster, broker: Broker, work: None, seen: Callable[..., None]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    controller = cluster.controller.id
    victim = next(node for node in cluster.nodes if node.id != controller)
    admin.create_topics([NewTopic("lonely", 1, replica_assignment=[[victim.id]])])["lonely"].result(LONG)
    dashboard = Dashboard(DASHBOARD, prometheus, {"job": JOB})
    queries = {panel: query for panel, query, is_graph in dashboard.queries() if not is_graph}

    def shown(panel: str) -> float:
        return prometheus.total(queries[panel])

    def firing() -> set[str]:
        return {each.name for each in prometheus.alerts() if each.state == "firing"}

    def is_well() -> bool:
        return not any(shown(panel) for panel in queries) and not firing() & OF_A_LOST_NODE

    def behind() -> int:
        topics = admin.list_topics(timeout=SHORT).topics.values()
        partitions = [each for topic in topics for each in topic.partitions.values() if each.leader >= 0]
        return sum(len(each.isrs) < len(each.replicas) for each in partitions)

    prometheus.until(is_well, "to find all well")
    victim.kill()
    try:
        prometheus.until(lambda: firing() >= OF_A_LOST_NODE, "to raise the alerts of a lost node")
        prometheus.until(lambda: 0 < shown("Under-replicated partitions") == behind(), "to count what lags behind")
        lagging = behind()
        assert shown("Nodes that do not answer") == shown("Fenced brokers") == 1
        assert shown("Partitions without a leader") == 1
        assert shown("Partitions below min.insync.replicas") == 0
        told = {
            "1 partitions have no leader",
            "1 registered brokers are fenced",
            f"{lagging} partitions have a replica outside of the ISR",
            f"127.0.0.1:{port_of(cluster, victim.id)} does not answer",
        }

        def are_told() -> bool:
            return {each.summary for each in prometheus.alerts() if each.labels["job"] == JOB} >= told

        prometheus.until(are_told, f"to say {told}")
    finally:
        victim.start()
        cluster.await_in_sync()
    prometheus.until(is_well, "to find all well again")
    assert [rule for rule in prometheus.rules() if rule[1:] != ("ok", "")] == []
    seen(
        "a node was killed: the dashboard showed it, a partition without a leader, a fenced broker and as many "
        "under-replicated partitions as clients are told, and the alerts for these fired; all was well when it was back"
    )
