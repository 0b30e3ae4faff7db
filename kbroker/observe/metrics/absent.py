"""Names of metrics that published dashboards use and a node does not serve, by the reason."""

from __future__ import annotations

from typing import Final

_CHANNEL = ("incoming_byte", "outgoing_byte", "request", "response")

ABSENT: Final[dict[str, tuple[str, ...]]] = {
    "The quorum's requests are not counted apart from others": (
        *(f"kafka_server_raftchannelmetrics_{name}_total" for name in _CHANNEL),
        *(f"kafka_server_raft_channel_metrics_{name}" for name in _CHANNEL),
    ),
    "Times of elections are not measured": ("kafka_server_raft_metrics_election_latency_max",),
    "Changes of the metadata are decided as they come: there is no queue of events": (
        "kafka_controller_controllereventmanager_eventqueuetimems",
    ),
    "The controller writes nothing where there is nothing to write, so that the age of the last record tells nothing": (
        "kafka_controller_kafkacontroller_lastappliedrecordlagms",
    ),
    "A node that meets an error in the metadata stops": ("kafka_controller_kafkacontroller_metadataerrorcount",),
    "One event loop reads, serves and sends: there are no queues between threads. The times that requests and "
    "responses wait for others are measured": (
        "kafka_network_requestchannel_requestqueuesize",
        "kafka_network_requestchannel_responsequeuesize",
        "kafka_network_acceptor_acceptorblockedpercent",
    ),
    "Nothing is converted for a Fetch (Kafka 4 does not, either)": (
        "kafka_server_brokertopicmetrics_fetchmessageconversionspersec",
    ),
    "There is no tiered storage": ("kafka_log_log_tiersize",),
    "A leader holds a follower's request until it has news: the rate of requests tells whether records come, not "
    "whether followers keep up. The records that they lag behind are measured (`MaxLag`)": (
        "kafka_server_replicafetchermanager_minfetchrate",
    ),
    "Not Apache Kafka's, but of Confluent's server alone": (
        "kafka_server_replicamanager_straypartitionscount",
        "kafka_server_replicamanager_straypartitionsmisclassifiedcount",
        "kafka_server_replicamanager_straypartitionstotalsize",
    ),
}
