"""Names of metrics that published dashboards and alerts use, by the dialect that they are written for.

Names are facts; the dashboards are not here. Taken from Strimzi's examples for Kafka (dashboards ``strimzi-kafka`` and
``strimzi-kraft`` of both exporters, ``strimzi-kafka-exporter``, and its alerts) and from Confluent's
``jmx-monitoring-stacks`` (``kafka-cluster-kraft``, ``kafka-topics-kraft``, ``kraft``, ``confluent-platform-kraft``).
"""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Dialect

_TRAFFIC = ("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests")
_FAILED = ("failedproducerequests", "failedfetchrequests")
_PARTITION = {f"kafka_cluster_partition_{name}" for name in ("atminisr", "underminisr", "replicascount")}
_REPLICAS = {
    f"kafka_server_replicamanager_{name}" for name in ("leadercount", "partitioncount", "underreplicatedpartitions")
}
_CONTROLLER = {
    f"kafka_controller_kafkacontroller_{name}" for name in ("activecontrollercount", "offlinepartitionscount")
}
_COMMON = {
    *_PARTITION,
    *_REPLICAS,
    *_CONTROLLER,
    "kafka_log_log_size",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "process_open_fds",
}
_RAFT = (
    "append_records_rate",
    "commit_latency_avg",
    "current_epoch",
    "current_leader",
    "current_vote",
    "fetch_records_rate",
    "high_watermark",
    "log_end_offset",
)
_EXPORTER = {
    "kafka_broker_info",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_lag",
    "kafka_topic_partitions",
    *(
        f"kafka_topic_partition_{name}"
        for name in (
            "current_offset",
            "in_sync_replica",
            "leader_is_preferred",
            "oldest_offset",
            "replicas",
            "under_replicated_partition",
        )
    ),
}

PUBLISHED: dict[Dialect, set[str]] = {
    Dialect.STRIMZI: {
        *_COMMON,
        *_EXPORTER,
        *(f"kafka_server_brokertopicmetrics_{name}_total" for name in (*_TRAFFIC, *_FAILED)),
        *(f"kafka_server_raftmetrics_{name}" for name in (*_RAFT, "current_state")),
        *(
            f"kafka_server_raftchannelmetrics_{name}_total"
            for name in ("incoming_byte", "outgoing_byte", "request", "response")
        ),
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka_server_socket_server_metrics_connection_count",
        "kafka_log_logmanager_offlinelogdirectorycount",
    },
    Dialect.REPORTER: {
        *_COMMON,
        *(f"kafka_server_brokertopicmetrics_{name}persec_total" for name in (*_TRAFFIC, *_FAILED)),
        *(f"kafka_server_raft_metrics_{name}" for name in (*_RAFT, "current_state_info")),
        *(
            f"kafka_server_raft_channel_metrics_{name}"
            for name in ("incoming_byte", "outgoing_byte", "request", "response")
        ),
        "kafka_controller_controllerstats_uncleanleaderelectionspersec_total",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
        "kafka_server_socket_server_metrics_connection_count",
    },
    Dialect.CONFLUENT: {
        *_COMMON - {"kafka_cluster_partition_atminisr", "kafka_cluster_partition_replicascount", "process_open_fds"},
        *(f"kafka_server_brokertopicmetrics_{name}persec" for name in _TRAFFIC),
        "kafka_server_brokertopicmetrics_fetchmessageconversionspersec",
        "kafka_server_brokertopicmetrics_producemessageconversionspersec",
        "kafka_controller_controllerstats_uncleanleaderelectionspersec",
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
        "kafka_controller_controllereventmanager_eventqueuetimems",
        *(
            f"kafka_controller_kafkacontroller_{name}"
            for name in (
                "activebrokercount",
                "fencedbrokercount",
                "globalpartitioncount",
                "globaltopiccount",
                "lastappliedrecordlagms",
                "metadataerrorcount",
                "preferredreplicaimbalancecount",
            )
        ),
        *(
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}"
            for state in ("", "completingrebalance", "dead", "empty", "preparingrebalance", "stable")
        ),
        "kafka_log_log_logendoffset",
        "kafka_log_log_logstartoffset",
        "kafka_log_log_tiersize",
        "kafka_network_acceptor_acceptorblockedpercent",
        "kafka_network_requestchannel_requestqueuesize",
        "kafka_network_requestchannel_responsequeuesize",
        *(
            f"kafka_network_requestmetrics_{name}"
            for name in (
                "errorspersec",
                "localtimems",
                "remotetimems",
                "requestqueuetimems",
                "requestspersec",
                "responsequeuetimems",
                "responsesendtimems",
                "totaltimems",
            )
        ),
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
        "kafka_server_kafkaserver_brokerstate",
        *(
            f"kafka_server_raft_metrics_{name}"
            for name in (
                "append_records_rate",
                "commit_latency_avg",
                "current_epoch",
                "current_leader",
                "election_latency_max",
                "fetch_records_rate",
                "high_watermark",
            )
        ),
        "kafka_server_replicafetchermanager_maxlag",
        "kafka_server_replicafetchermanager_minfetchrate",
        *(
            f"kafka_server_replicamanager_{name}"
            for name in (
                "isrexpandspersec",
                "isrshrinkspersec",
                "straypartitionscount",
                "straypartitionsmisclassifiedcount",
                "straypartitionstotalsize",
            )
        ),
        *(
            f"kafka_server_socketservermetrics_{name}"
            for name in ("connection_close_rate", "connection_count", "connection_creation_rate", "connections")
        ),
        "process_cpu_seconds_total",
    },
}
"""Those of a Java virtual machine (``jvm_...``) are left out: a node without one can have none."""
