"""Single metrics of a node, after something has happened that they are for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker import types
from kbroker.client.cluster import Client
from kbroker.client.reassignments import alter_reassignments, list_reassignments
from kbroker.observe.metrics.absent import ABSENT
from kbroker.observe.metrics.catalogue import all_families
from kbroker.observe.metrics.dialect import Dialect
from kbroker.raft_metadata.features import SUPPORTED_FEATURES
from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.record_batch import Record, build_batch
from tests.every_node import await_topics
from tests.metrics.expressions import of_alerts, of_dashboard
from tests.metrics.published_metric_names import PUBLISHED
from tests.node.metrics_pages import LISTENER, Values, found, port_of, ports_of, scrape, total, value
from tests.node.node_harness import produce_request
from tests.node.quorum_harness import quorum
from tests.patience import LONG

REQUESTS = 150
"""Beyond the first 64, which are all measured."""

UNLESS_SHARED = {"kafka_server_sharepartitionmetrics_inflightmessagecount"}
"""On the page of a node that serves share groups."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(LISTENER) as it:
        yield it


@pytest.fixture(scope="module")
def page(broker: RunningBroker) -> Values:
    """After some traffic, a group and an open transaction."""
    bootstrap = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("limited", 1, config={"retention.bytes": "10000"})])["limited"].result(LONG)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce("limited", b"x" * 5000, partition=0)
    assert producer.flush(LONG) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.subscribe(["limited"])
    deadline = time.monotonic() + LONG
    while not consumer.assignment():  # who is about to join cannot commit
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition("limited", 0, 0)], asynchronous=False)
    active = ("kafka_server_group_coordinator_metrics_num_partitions", (("state", "active"),))
    while (scraped := scrape(port_of(broker))).get(active, 0) < 50:  # some may be loaded later than the group's
        assert time.monotonic() < deadline
    consumer.close()
    producer.abort_transaction(LONG)
    return scraped


@pytest.mark.parametrize("asked", [of_dashboard(), of_alerts()], ids=["dashboard", "alerts"])
def test_each_metric_that_the_repositorys_own_files_ask_for_is_on_the_page(page: Values, asked: set[str]) -> None:
    assert asked - {name for name, _ in page} - UNLESS_SHARED - {"kafka_network_requestmetrics_errors_total"} == set()


def test_each_name_that_published_dashboards_ask_for_is_on_the_page(page: Values) -> None:
    absent = {name for names in ABSENT.values() for name in names}
    shown = {name for name, _ in page}
    assert PUBLISHED[Dialect.STRIMZI] - absent - shown == set()


def test_each_value_has_the_labels_that_the_list_of_metrics_tells(page: Values) -> None:
    told = {family.names[Dialect.STRIMZI]: set(family.labels) for family in all_families()}
    for name, labels in page:
        own = told.get(name, told.get(name.removesuffix("_count")))
        assert own is not None, name
        assert {label for label, _ in labels} - own <= {"quantile"}, name


def test_the_process(page: Values) -> None:
    """KIP-436, KIP-551, KIP-1291."""
    started = value(page, "kafka_server_app_info_starttimems", id=str(_node_id(page)))
    assert time.time() * 1000 - 600_000 < started <= time.time() * 1000
    if Path("/proc/self/io").exists():
        names = ("read_bytes", "write_bytes", "rchar", "wchar", "syscr", "syscw", "cancelled_write_bytes")
        disk = {name: value(page, f"kafka_server_kafkaserver_linux_disk_{name}") for name in names}
        assert disk["wchar"] > 5000 and disk["syscw"] > 0 and disk["rchar"] > 0
    assert value(page, "process_major_page_faults_total") >= 0


def _node_id(page: Values) -> int:
    ((labels, _),) = found(page, "kafka_broker_info").items()
    return int(dict(labels)["id"])


def test_the_metadata(page: Values) -> None:
    """KIP-748, KIP-938, KIP-1001, KIP-1131, KIP-1180."""
    node = _node_id(page)
    controller = "kafka_controller_kafkacontroller"
    assert value(page, "kafka_server_metadataloader_currentcontrollerid") == node
    assert value(page, f"{controller}_activebrokercount") == 1 and value(page, f"{controller}_fencedbrokercount") == 0
    assert value(page, f"{controller}_brokerregistrationstate", broker=str(node)) == 30
    assert value(page, f"{controller}_controlledshutdownbrokercount") == 0
    assert (
        value(page, f"{controller}_lastcommittedrecordoffset")
        >= value(page, f"{controller}_lastappliedrecordoffset")
        > 5
    )
    version = value(page, "kafka_server_metadataloader_currentmetadataversion")
    assert version == value(page, "kafka_server_metadataloader_finalizedlevel", featureName="metadataVersion") > 20
    for name, levels in SUPPORTED_FEATURES.items():
        label = name.replace(".", "-")
        assert value(page, "kafka_server_node_metrics_maximum_supported_level", feature_name=label) == levels.max
    assert value(page, "kafka_server_raftmetrics_number_of_voters") == 1
    assert 0 < value(page, "kafka_server_raftmetrics_commit_latency_avg") < 10_000
    assert value(page, "kafka_controller_controllereventmanager_eventqueueprocessingtimems_count") > 0
    assert value(page, f"{controller}_eventqueueoperationsstartedcount") > 0


def test_the_idle_share_under_all_its_names(page: Values) -> None:
    """KIP-1190, KIP-1207, KIP-1229."""
    pool = "kafka_server_kafkarequesthandlerpool"
    shares = {
        value(page, name)
        for name in (
            "kafka_controller_controllereventmanager_avgidleratio",
            "kafka_server_metadataloader_avgidleratio",
            f"{pool}_requesthandleravgidle_percent",
            f"{pool}_brokerrequesthandleravgidle_percent",
            f"{pool}_controllerrequesthandleravgidle_percent",
        )
    }
    assert len(shares) == 1 and 0 <= shares.pop() <= 1


def test_groups_under_old_and_new_names(page: Values) -> None:
    """KIP-180, KIP-484, KIP-1301."""
    new, old = "kafka_server_group_coordinator_metrics", "kafka_coordinator_group_groupmetadatamanager"
    assert value(page, f"{new}_group_count", protocol="classic") == value(page, f"{old}_numgroups") == 1
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"):
        assert value(page, f"{new}_classic_group_count", state=state) == value(page, f"{old}_numgroups{state.lower()}")
    assert sum(found(page, f"{new}_classic_group_count").values()) == 1
    assert value(page, f"{new}_offset_count") == value(page, f"{old}_numoffsets") == 1
    assert value(page, f"{new}_group_completed_rebalance_count") >= 1
    assert (
        value(page, f"{new}_share_group_rebalance_count") == value(page, f"{new}_consumer_group_rebalance_count") == 0
    )
    assert value(page, f"{new}_num_partitions", state="active") == 50
    assert 0 < value(page, f"{new}_partition_load_time_avg") <= value(page, f"{new}_partition_load_time_max")
    assert value(page, "kafka_server_transaction_coordinator_metrics_partition_load_time_max") > 0


def test_logs(page: Values) -> None:
    """KIP-346, KIP-847, KIP-1257."""
    size = value(page, "kafka_log_log_size", topic="limited", partition="0")
    assert value(page, "kafka_log_log_retentionsizein_percent", topic="limited", partition="0") == size // 100
    assert value(page, "kafka_server_replicamanager_produceridcount") == 1
    ((labels, free),) = found(page, "kbroker_log_dir_free_bytes").items()
    assert 0 < free < value(page, "kbroker_log_dir_total_bytes", **dict(labels))
    assert os.path.isdir(dict(labels)["logDirectory"])
    assert value(page, "kafka_log_logcleanermanager_uncleanable_partitions_count", **dict(labels)) == 0
    assert value(page, "kafka_log_logmanager_logdirectoryoffline", **dict(labels)) == 0


def test_sockets_and_requests_by_listener_version_and_software(page: Values) -> None:
    """KIP-136, KIP-272, KIP-511."""
    listeners = found(page, "kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT")
    assert sum(listeners.values()) >= 2
    software = found(
        page, "kafka_server_socket_server_metrics_connections", client_software_name="confluent-kafka-python"
    )
    assert sum(software.values()) >= 2
    versions = found(page, "kafka_network_requestmetrics_requests_total", request="ApiVersions")
    assert all(dict(labels)["version"].isdigit() for labels in versions) and sum(versions.values()) >= 2


def batch() -> bytes:
    return build_batch([Record(0, int(time.time() * 1000), None, b"x", ())])


def test_every_request_is_counted_and_errors_by_their_code(broker: RunningBroker) -> None:
    """KIP-143, KIP-188: most Produce requests here take the short way, and few are measured."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("counted", 1)])["counted"].result(LONG)
    name, error = "kafka_network_requestmetrics_requests_total", "kafka_network_requestmetrics_errors_total"
    before = scrape(port_of(broker))
    with Client(broker.bootstrap_servers) as client:
        for topic, count in (("counted", REQUESTS), ("no-such-topic", 3)):
            for _ in range(count):
                client.ask_any(produce_request(topic, batch(), acks=1), highest=9)
    after = scrape(port_of(broker))
    counted = sum(found(after, name, request="Produce").values()) - sum(found(before, name, request="Produce").values())
    assert counted == REQUESTS + 3
    times = "kafka_network_requestmetrics_totaltimems_count"
    assert value(after, times, request="Produce") == sum(found(after, name, request="Produce").values())
    errors = found(after, error, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")
    assert sum(errors.values()) == 3
    assert "NONE" not in {dict(labels)["error"] for labels in found(after, error)}


def test_requests_that_take_turns_on_a_connection_are_counted_each(broker: RunningBroker) -> None:
    """Shortcuts of two APIs, and a scrape while they are used."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("turns", 1)])["turns"].result(LONG)
    name = "kafka_network_requestmetrics_requests_total"

    def counts() -> dict[str, float]:
        page = scrape(port_of(broker))
        return {api: sum(found(page, name, request=api).values()) for api in ("Produce", "ListOffsets")}

    before = counts()
    asked = ListOffsetsTopic(name="turns", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    with Client(broker.bootstrap_servers) as client:
        for number in range(100):
            client.ask_any(produce_request("turns", batch(), acks=1), highest=9)
            if number >= 40:
                client.ask_any(ListOffsetsRequest(replica_id=-1, topics=[asked]))
            if number == 70:
                assert counts() == {"Produce": before["Produce"] + 71, "ListOffsets": before["ListOffsets"] + 31}
        assert counts() == {"Produce": before["Produce"] + 100, "ListOffsets": before["ListOffsets"] + 60}
    after = counts()
    assert after == {"Produce": before["Produce"] + 100, "ListOffsets": before["ListOffsets"] + 60}


def test_log_directories_one_by_one(tmp_path: Path) -> None:
    """KIP-1066, KIP-1100."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    with running_broker(LISTENER | {"log.dirs": ",".join(dirs), "cordoned.log.dirs": dirs[1]}) as two:
        page = scrape(port_of(two))
        assert value(page, "kafka_server_assignmentsmanager_queuedreplicatodirassignments") >= 0
        cordoned = "kafka_log_logmanager_logdirectorycordoned"
        assert [value(page, cordoned, logDirectory=path) for path in dirs] == [0, 1]
        assert value(page, "kafka_log_logmanager_cordonedlogdirectorycount") == 1
        assert value(page, "kafka_log_logmanager_offlinelogdirectorycount") == 0


def test_the_same_requests_in_each_dialect(broker: RunningBroker) -> None:
    sent = {
        dialect: sum(found(scrape(port_of(broker), dialect), name).values())
        for dialect, name in (
            (Dialect.STRIMZI, "kafka_network_requestmetrics_requests_total"),
            (Dialect.CONFLUENT, "kafka_network_requestmetrics_requestspersec"),
            (Dialect.REPORTER, "kafka_network_requestmetrics_requestspersec_total"),
        )
    }
    assert len(set(sent.values())) == 1 and min(sent.values()) > 0


async def test_a_controller_and_a_broker_alone(tmp_path: Path) -> None:
    """Each role shows what it has, and a broker with share groups what belongs to those."""
    properties = LISTENER
    of_all = {1: properties, 2: properties}
    async with quorum(
        tmp_path, 2, initial=1, roles="controller", roles_of={2: "broker"}, properties_of=of_all
    ) as cluster:
        await cluster.start(1, 2)
        await cluster.until(lambda: not cluster.newest_image().brokers[2].fenced)
        ports = [cluster.nodes[node].metrics_port for node in (1, 2)]
        controller, broker = [await trio.to_thread.run_sync(scrape, port) for port in ports if port is not None]
    state = "kafka_controller_kafkacontroller_brokerregistrationstate"
    assert found(controller, state) == {(("broker", "2"),): 30} and not found(broker, state)
    assert value(controller, "kafka_server_raftmetrics_current_state", current_state="leader") == 1
    assert not found(controller, "kafka_server_kafkaserver_brokerstate")
    assert value(broker, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(broker, "kafka_server_metadataloader_currentcontrollerid") == 1
    assert value(broker, "kafka_server_broker_metadata_metrics_last_applied_record_offset") > 5
    assert value(broker, "kafka_server_sharesessioncache_sharesessionscount") == 0
    assert not found(controller, "kafka_server_sharesessioncache_sharesessionscount")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3, LISTENER) as it:
        yield it


def test_replication_on_three_nodes(cluster: RunningCluster) -> None:
    """KIP-96, KIP-153, KIP-164, KIP-352, KIP-427."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"min.insync.replicas": "3"}
    admin.create_topics([NewTopic("copied", 1, 3, config=config)])["copied"].result(LONG)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce("copied", b"x" * 5000)
    assert producer.flush(LONG) == 0
    pages = [scrape(port) for port in ports_of(cluster)]
    assert total(pages, "kafka_server_brokertopicmetrics_replicationbytesin_total") > 10_000
    assert total(pages, "kafka_server_brokertopicmetrics_bytesout_total") == 0
    of_topic = {"topic": "copied", "partition": "0"}
    assert total(pages, "kafka_cluster_partition_insyncreplicascount", **of_topic) == 3
    assert total(pages, "kafka_cluster_partition_atminisr", **of_topic) == 1
    assert total(pages, "kafka_server_replicamanager_atminisrpartitioncount") == 1
    assert total(pages, "kafka_server_replicamanager_underminisrpartitioncount") == 0
    assert total(pages, "kafka_server_replicamanager_reassigningpartitions") == 0
    silences = [
        age
        for page in pages
        for age in found(page, "kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms").values()
    ]
    assert len(silences) == 2 and max(silences) < 60_000
    assert {page["kafka_server_raftmetrics_number_of_voters", ()] for page in pages} == {3}


def test_what_all_nodes_know_and_what_one_alone_tells(cluster: RunningCluster) -> None:
    """Controllers tell the same, as Apache Kafka's do; dashboards for kafka-exporter add up topics and brokers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("told-once", 6, 3)])["told-once"].result(LONG)
    await_topics(cluster, "told-once")
    pages = [scrape(port) for port in ports_of(cluster)]
    for name, least in (("globaltopiccount", 1), ("globalpartitioncount", 6), ("activebrokercount", 3)):
        (told,) = {value(page, f"kafka_controller_kafkacontroller_{name}") for page in pages}
        assert told >= least
    states = "kafka_controller_kafkacontroller_brokerregistrationstate"
    assert [sorted(found(page, states).values()) for page in pages] == [[30, 30, 30]] * 3
    assert total(pages, "kafka_topic_partitions", topic="told-once") == 6
    infos = [dict(labels)["id"] for page in pages for labels in found(page, "kafka_broker_info")]
    assert infos == ["1", "2", "3"]


def test_bytes_of_a_reassignment_are_counted_on_both_sides(cluster: RunningCluster) -> None:
    """KIP-352: by the leader that sends them and by the broker that gets a replica, and for no other replica."""
    bytes_in, bytes_out = (f"kafka_server_brokertopicmetrics_reassignmentbytes{way}_total" for way in ("in", "out"))
    bootstrap = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": "1"}
    admin.create_topics([NewTopic("moved", 1, replica_assignment=[[1, 2]], config=config)])["moved"].result(LONG)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("moved", b"x" * 5000)
    assert producer.flush(LONG) == 0
    before = [scrape(port) for port in ports_of(cluster)]
    with Client(bootstrap) as client:
        partition = types.TopicPartition("moved", 0)
        client.partitions_of("moved")
        leader = client.leader(partition)
        assert not any(alter_reassignments(client, {partition: [1, 3]}).values())
        while list_reassignments(client):
            time.sleep(0.05)
    after = [scrape(port) for port in ports_of(cluster)]
    assert [total(before, name) for name in (bytes_in, bytes_out)] == [0, 0]
    assert [value(page, bytes_out) > 5000 for page in after] == [leader == node for node in (1, 2, 3)]
    assert [value(page, bytes_in) > 5000 for page in after] == [False, False, True]
