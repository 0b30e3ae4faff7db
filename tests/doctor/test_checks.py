"""Mistakes planted in facts: each is found by the check that is meant for it, and by no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kbroker.client.nodes import Feature
from kbroker.client.open_transactions import OpenTransaction
from kbroker.client.quotas import EntityQuotas
from kbroker.client.transactions import ProducerState, TransactionDescription
from kbroker.tools.cli import build_parser
from kbroker.tools.diagnosis.facts import DamagedReplica, Holder, QuorumNode
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.diagnosis.stuck_groups import LaggingPartition, Member, Stall
from kbroker.tools.doctor.checklist import all_checks
from kbroker.tools.doctor.facts import ClusterFacts, DirectoryFacts, Facts, GroupLook, LogDirFacts, MachineFacts
from kbroker.tools.doctor.findings import examine
from kbroker.types import TopicPartition
from tests.doctor.sound import (
    CERTIFICATE,
    CLIENT,
    CLUSTER,
    CONFIGS,
    CONFIGURATION,
    DAY,
    GROUP,
    LOOK,
    NOW,
    P0,
    QUORUM,
    SOUND,
    broker,
    in_sync,
    listener,
    topic,
)
from tests.with_each import with_each

CHECKS = all_checks()
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def found(facts: Facts) -> dict[str, list[Finding]]:
    """Check -> its findings."""
    result: dict[str, list[Finding]] = {}
    for check, finding in examine(facts, list(CHECKS)):
        result.setdefault(check.name, []).append(finding)
    return result


def with_cluster(**changes: Any) -> Facts:
    return replace(SOUND, cluster=replace(CLUSTER, **changes))


def with_broker(**changes: Any) -> Facts:
    return with_cluster(brokers=(broker(1), broker(2, **changes), broker(3)))


def with_listener(**changes: Any) -> Facts:
    return with_broker(listener=listener(2, "kafka-2", **changes))


def shut_out(refusal: str, **changes: Any) -> Facts:
    """No address lets the client in."""
    return with_cluster(
        bootstrap=(listener(None, "kafka", **{"entered": False, "refusal": refusal, "cluster_id": None} | changes),),
        cluster_id=None,
        brokers=(),
        quorum=None,
        topics=None,
        groups=None,
        transactions=None,
        quotas=None,
    )


def with_configs(**configs: str) -> Facts:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return with_broker(configs=CONFIGS | given)


def with_topics(*topics: Any) -> Facts:
    return with_cluster(topics=(*SOUND.topics, *topics))


def with_second(**changes: Any) -> Facts:
    assert GROUP.second is not None
    return with_cluster(groups=(replace(GROUP, second=replace(GROUP.second, **changes)),))


def with_client(**given: str) -> Facts:
    named = {key.replace("_", "."): value for key, value in given.items()}
    return replace(SOUND, client=replace(CLIENT, given={**CLIENT.given, **named}))


def with_configuration(**changes: Any) -> Facts:
    return replace(SOUND, configuration=replace(CONFIGURATION, **changes))


def with_directory(**changes: Any) -> Facts:
    return with_configuration(directories=(replace(CONFIGURATION.directories[0], **changes),))


def with_quorum(**changes: Any) -> Facts:
    return with_cluster(quorum=replace(QUORUM, **changes))


VOTER_3_BEHIND = (*QUORUM.nodes[:2], QuorumNode(3, "voter", 400, 500, NOW - 60_000))


def clocked(off_ms: int) -> tuple[QuorumNode, ...]:
    """The controllers, by a clock that is off by so much."""
    return tuple(node._replace(caught_up=NOW + off_ms) for node in QUORUM.nodes)


def lagging(holder: Holder | None = None) -> Facts:
    """A member has been at offset 90 for as long as was looked at, where a transaction may block it."""
    stable = None if holder is None else 90
    stuck = LaggingPartition(P0, 90, 0, 108, Stall(NOW - 10_000), stable, Member("m1", "till", "10.0.0.7"), holder)
    return with_cluster(groups=(replace(GROUP, lagging=(stuck,)),))


def unowned(at: int) -> OpenTransaction:
    """A transaction of which no coordinator tells; its producer wrote last at a time."""
    return OpenTransaction(P0, 17, ProducerState(4, 0, 0, at, 0, 17))


OTHER_NAMES = replace(CERTIFICATE, names=("kafka-9",))
EXPIRED = replace(CERTIFICATE, valid_until=NOW - DAY)
KBROKER_ALONE = replace(
    CLUSTER,
    brokers=(broker(1, configs=CONFIGS | {"default.replication.factor": "1"}, is_kbroker=True),),
    quorum=replace(QUORUM, nodes=QUORUM.nodes[:1]),
    topics=(topic("orders", replicas=(1,), min_insync_replicas="1"),),
)
APACHE_ALONE = replace(KBROKER_ALONE, brokers=(replace(KBROKER_ALONE.brokers[0], is_kbroker=False),))

MISTAKES: dict[str, tuple[str, Facts]] = {
    "a bootstrap address is wrong": (
        "bootstrap",
        with_cluster(bootstrap=(*CLUSTER.bootstrap, listener(None, "kafka-7", problem="refused", certificate=None))),
    ),
    "a broker's port is closed": (
        "advertised-reachable",
        with_listener(problem="refused", entered=False, has_tls=None, certificate=None),
    ),
    "a broker advertises a container's name": (
        "advertised-reachable",
        with_listener(problem="the name is not known", resolved=(), entered=False, has_tls=None, certificate=None),
    ),
    "a broker advertises localhost": (
        "advertised-local",
        with_broker(listener=listener(2, "localhost", resolved=("127.0.0.1",), certificate=None)),
    ),
    "a broker advertises 0.0.0.0": (
        "advertised-local",
        with_broker(listener=listener(2, "0.0.0.0", resolved=("0.0.0.0",), certificate=None)),
    ),
    "two brokers have one address": ("advertised-identity", with_listener(other_id="3")),
    "an address belongs to another cluster": ("advertised-identity", with_listener(cluster_id="c2")),
    "bootstrap addresses of two clusters": (
        "advertised-identity",
        with_cluster(bootstrap=(listener(None, "kafka"), listener(None, "kafka-3", cluster_id="c9"))),
    ),
    "the port of a controller": ("not-a-broker", shut_out("", is_broker=False, entered=True)),
    "the port of something else": ("not-a-broker", shut_out("closed", has_tls=None, has_sasl=None, certificate=None)),
    "a plain listener": ("security-protocol", shut_out("no TLS", has_tls=False, certificate=None)),
    "a listener without SASL": ("security-protocol", shut_out("no SASL", has_sasl=False)),
    "another SASL mechanism": ("sasl-mechanism", shut_out("no such mechanism", mechanisms=("PLAIN",))),
    "a wrong password": ("login", shut_out("invalid credentials")),
    "a certificate ends soon": (
        "certificate-expiry",
        with_listener(certificate=replace(CERTIFICATE, valid_until=NOW + DAY)),
    ),
    "a certificate has expired": ("certificate-expiry", shut_out("expired", certificate=EXPIRED)),
    "a certificate of tomorrow": (
        "certificate-expiry",
        shut_out("no", certificate=replace(CERTIFICATE, valid_from=NOW + DAY)),
    ),
    "a certificate of another host": ("certificate-name", shut_out("mismatch", certificate=OTHER_NAMES)),
    "a configured certificate of another host": (
        "certificate-name",
        with_configuration(listeners=(replace(CONFIGURATION.listeners[0], certificate=OTHER_NAMES),)),
    ),
    "an unknown authority": (
        "certificate-trust",
        shut_out("unable to get local issuer certificate", distrust="unknown"),
    ),
    "an old version of TLS": ("tls-version", with_listener(weak_tls=("TLSv1.1",))),
    "a listener without authentication": ("exposure", with_configuration(exposed=("NO AUTHENTICATION on X",))),
    "a cluster without authentication": (
        "exposure",
        replace(
            SOUND,
            client=replace(CLIENT, protocol="PLAINTEXT", mechanism=""),
            cluster=replace(
                CLUSTER,
                brokers=(
                    broker(1, listener=listener(1, "kafka-1", has_tls=False, has_sasl=False, certificate=None)),
                    *(broker(each, listener=None) for each in (2, 3)),
                ),
                bootstrap=(),
            ),
        ),
    ),
    "no active controller": ("controller-quorum", with_quorum(leader=-1)),
    "no answer about the quorum": ("controller-quorum", with_quorum(leader=-1, problem="timed out")),
    "a controller is behind": ("quorum-lag", with_quorum(nodes=VOTER_3_BEHIND)),
    "two controllers": ("quorum-size", with_quorum(nodes=QUORUM.nodes[:2])),
    "a broker is fenced": ("fenced-broker", with_broker(fenced=True, listener=None, newest_own_record=None)),
    "the controller's clock is ahead": ("clocks", with_quorum(nodes=clocked(30_000))),
    "the controller's clock is behind": ("clocks", with_quorum(nodes=clocked(-300_000))),
    "a broker's clock is ahead": ("clocks", with_broker(newest_own_record=NOW + 90_000)),
    "a disk is nearly full": ("disk-space", with_broker(log_dirs=(LogDirFacts("/data", False, 1 << 40, 1 << 30),))),
    "a data directory is nearly full": ("disk-space", with_directory(free=1 << 20)),
    "a log is damaged": (
        "damaged-replica",
        with_broker(
            log_dirs=(
                LogDirFacts("/data", False, damaged=(DamagedReplica(1, TopicPartition("orders", 0), 30, 60, "zeros"),)),
            )
        ),
    ),
    "a disk damages files": ("bad-disk", with_broker(log_dirs=(LogDirFacts("/data", False, scrub_found=2),))),
    "a disk has failed": ("disk-failed", with_broker(log_dirs=(LogDirFacts("/data", True),))),
    "a broker is older": ("version-mixture", with_broker(apis={0: (3, 12), 1: (4, 18)})),
    "an upgrade was not finished": (
        "features-behind",
        with_cluster(
            brokers=tuple(broker(each, features=(Feature("metadata.version", 7, 30, 25),)) for each in (1, 2, 3))
        ),
    ),
    "a partition without a leader": ("offline-partitions", with_topics(in_sync(topic("t"), (), None))),
    "too few in sync": ("under-min-isr", with_topics(in_sync(topic("t"), (1,)))),
    "a follower is behind": ("under-replicated", with_topics(in_sync(topic("t"), (1, 2)))),
    "min.insync.replicas is too large": ("min-isr", with_topics(topic("t", replicas=(1, 2), min_insync_replicas="3"))),
    "min.insync.replicas leaves no room": ("min-isr", with_topics(topic("t", min_insync_replicas="3"))),
    "min.insync.replicas over the default": ("min-isr", with_configuration(values={"min.insync.replicas": "2"})),
    "one replica": ("single-copy", with_topics(topic("t", replicas=(2,), min_insync_replicas="1"))),
    "two replicas on one machine": (
        "racks",
        with_cluster(
            brokers=(broker(1, rack="a"), broker(2, rack="a"), broker(3, rack="b")),
            topics=(topic("t", replicas=(1, 2), min_insync_replicas="1"),),
        ),
    ),
    "more default replicas than brokers": ("replication-factor", with_configs(default_replication_factor="5")),
    "few replicas of offsets": (
        "internal-topics",
        with_cluster(
            topics=(topic("__consumer_offsets", replicas=(1,), cleanup_policy="compact", min_insync_replicas="1"),)
        ),
    ),
    "offsets cannot be created": ("internal-topics", replace(SOUND, cluster=APACHE_ALONE)),
    "unclean elections": ("unclean-election", with_topics(topic("t", unclean_leader_election_enable="true"))),
    "a topic takes more than a request may have": (
        "message-sizes",
        with_topics(topic("t", max_message_bytes="200000000")),
    ),
    "a producer sends more than a topic takes": ("message-sizes", with_client(max_request_size="5000000")),
    "offsets are soon gone": ("retention", with_configs(offsets_retention_minutes="60")),
    "records are soon gone": ("retention", with_topics(topic("t", retention_ms="6000"))),
    "offsets are deleted by age": ("retention", with_cluster(topics=(topic("__consumer_offsets"),))),
    "records of the future": ("future-records", with_topics(replace(topic("t"), newest={0: NOW + DAY}))),
    "topics by typing error": ("auto-create", with_configs(auto_create_topics_enable="true")),
    "a group rebalances": (
        "group-rebalancing",
        with_cluster(
            groups=(
                replace(
                    GROUP,
                    first=GroupLook("PreparingRebalance", LOOK.members),
                    second=GroupLook("CompletingRebalance", LOOK.members),
                ),
            )
        ),
    ),
    "members come and go": ("group-rebalancing", with_second(members=frozenset({"m2", "m3"}))),
    "an epoch runs": ("group-rebalancing", with_second(epoch=12)),
    "a consumer is stuck": ("consumer-stuck", lagging()),
    "a consumer is blocked": ("consumer-stuck", lagging(Holder(unowned(NOW)))),
    "a transaction is over its time": (
        "hanging-transactions",
        with_cluster(transactions=(TransactionDescription("t", 1, "Ongoing", 4, 0, 60_000, NOW - DAY, (P0,)),)),
    ),
    "a transaction that no coordinator knows": (
        "hanging-transactions",
        with_cluster(unowned_transactions=(unowned(NOW),)),
    ),
    "a tiny quota": (
        "throttling",
        with_cluster(quotas=(EntityQuotas({"user": None}, {"consumer_byte_rate": 1024.0}),)),
    ),
    "answers are throttled": ("throttling", with_listener(throttled_ms=900)),
    "client properties that do not parse": ("client-properties", replace(SOUND, client=replace(CLIENT, problem="x"))),
    "a session without room": ("client-properties", with_client(session_timeout_ms="7000")),
    "a delivery without time": ("client-properties", with_client(delivery_timeout_ms="1000")),
    "idempotence without acks": ("client-properties", with_client(enable_idempotence="true", acks="1")),
    "a transaction timeout that is refused": ("client-limits", with_client(transaction_timeout_ms="3600000")),
    "a session timeout that is refused": ("client-limits", with_client(session_timeout_ms="9000000")),
    "a question is not answered": ("unanswered", with_cluster(unanswered={"the groups": "not authorized"})),
    "a configuration that is refused": ("configuration", with_configuration(problem="x")),
    "a misspelt property": ("configuration", with_configuration(unknown=("log.dir.s",))),
    "a property without effect": ("configuration", with_configuration(absent={"no tiered storage": ("remote.x",)})),
    "an advertised loopback address": (
        "advertised-config",
        with_configuration(
            listeners=(replace(CONFIGURATION.listeners[0], advertised_host="localhost", certificate=None),)
        ),
    ),
    "an advertised name that is not known": (
        "advertised-config",
        with_configuration(listeners=(replace(CONFIGURATION.listeners[0], resolved=()),)),
    ),
    "a directory of another node": ("directories", with_directory(node_id=2)),
    "a directory that cannot be used": ("directories", with_directory(problem="it is not a directory")),
    "directories of two clusters": (
        "directories",
        with_configuration(directories=(*CONFIGURATION.directories, DirectoryFacts("/two", "", True, "c2", 1))),
    ),
    "a temporary directory": ("directories", with_directory(path="/tmp/data")),
    "too few files": ("file-descriptors", replace(SOUND, machine=MachineFacts(1024, 1024, True))),
    "a clock without a server": ("clock-sync", replace(SOUND, machine=MachineFacts(65_536, 1_048_576, False))),
}


@with_each(MISTAKES)
def test_a_mistake_is_found_by_the_check_that_is_meant(mistake: str) -> None:
    name, facts = MISTAKES[mistake]
    findings = found(facts)
    assert list(findings) == [name], findings
    for finding in findings[name]:
        assert finding.text.endswith(".") and finding.evidence.endswith((".", ")")) and finding.advice, finding
        assert "None" not in finding.text + finding.evidence + finding.advice


def test_every_check_finds_a_mistake() -> None:
    assert {name for name, _ in MISTAKES.values()} == set(CHECKS)


def test_nothing_is_wrong_with_what_is_sound() -> None:
    assert found(SOUND) == {}


def test_kbroker_alone_creates_internal_topics_with_one_replica() -> None:
    assert found(replace(SOUND, cluster=KBROKER_ALONE)) == {}


def test_the_nodes_of_one_machine_are_one_place_for_replicas() -> None:
    """A second replica there would be away with the first."""

    def on(*hosts: str) -> Facts:
        node = KBROKER_ALONE.brokers[0]
        nodes = (replace(node, id=i, rack="m", listener=listener(i, host)) for i, host in enumerate(hosts, 1))
        return replace(SOUND, cluster=replace(KBROKER_ALONE, brokers=tuple(nodes)))

    assert found(on("kafka-1", "kafka-1")) == {}
    assert "single-copy" in found(on("kafka-1", "kafka-2"))


@with_each(CHECKS)
def test_a_check_has_nothing_to_say_of_what_was_not_looked_at(name: str) -> None:
    check = CHECKS[name]
    for facts in (Facts(NOW), Facts(NOW, cluster=ClusterFacts(())), replace(SOUND, cluster=None, configuration=None)):
        assert list(check.run(facts)) == []


@with_each(CHECKS)
def test_a_check_points_to_a_place_that_is_there(name: str) -> None:
    page, _, anchor = CHECKS[name].see.partition("#")
    headings = [line.lstrip("# ") for line in OPERATIONS.read_text().splitlines() if line.startswith("#")]
    assert page == OPERATIONS.name and anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_with_an_authorizer_a_transaction_without_a_coordinator_has_to_be_old() -> None:
    """ListTransactions leaves out what the client may not see."""
    brokers = tuple(broker(each, configs=CONFIGS | {"authorizer.class.name": "some"}) for each in (1, 2, 3))
    young, old = unowned(NOW - 60_000), unowned(NOW - DAY)
    assert found(with_cluster(brokers=brokers, unowned_transactions=(young,))) == {}
    assert list(found(with_cluster(brokers=brokers, unowned_transactions=(old,)))) == ["hanging-transactions"]


def test_commands_to_copy_can_be_run() -> None:
    commands = [
        finding.advice
        for _, facts in MISTAKES.values()
        for each in found(facts).values()
        for finding in each
        if finding.advice.startswith("kbroker ")
    ]
    assert len(commands) > 2
    for command in commands:
        parser, rest = build_parser(command.split()[1:])
        assert parser.parse_args(rest).run


def test_errors_come_first() -> None:
    facts = replace(with_configs(auto_create_topics_enable="true", offsets_retention_minutes="5"), client=CLIENT)
    facts = replace(facts, cluster=replace(facts.cluster, quorum=replace(QUORUM, leader=-1)))  # type: ignore[type-var]
    severities = [finding.severity for _, finding in examine(facts, list(CHECKS))]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_a_client_that_compares_no_names_does_not_mind_them() -> None:
    facts = with_listener(certificate=OTHER_NAMES)
    assert found(replace(facts, client=replace(CLIENT, checks_names=False))) == {}
