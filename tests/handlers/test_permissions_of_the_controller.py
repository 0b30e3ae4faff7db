"""Every API that the controller answers asks the authorizer as the table says, and a denied request changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import CloseConnection
from kbroker.handlers.common.permissions import ON_CONTROLLER, PERMISSIONS, Permission, Shown
from kbroker.handlers.registration import CONTROLLER, registrations
from kbroker.handlers.services.requester import principal_bytes
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.types import METADATA_TOPIC, Uuid
from kbroker.wire.messages import acls as create_acls
from kbroker.wire.messages import acls as delete_acls
from kbroker.wire.messages import acls as describe_acls
from kbroker.wire.messages import (
    add_raft_voter,
    allocate_producer_ids,
    alter_partition,
    begin_quorum_epoch,
    describe_cluster,
    describe_quorum,
    elect_leaders,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_features,
    update_raft_voter,
    vote,
)
from kbroker.wire.messages import client_quotas as alter_client_quotas
from kbroker.wire.messages import configs as alter_configs
from kbroker.wire.messages import configs as changes
from kbroker.wire.messages import log_dirs as assign_replicas_to_dirs
from kbroker.wire.messages import nodes as broker_heartbeat
from kbroker.wire.messages import nodes as broker_registration
from kbroker.wire.messages import nodes as controller_registration
from kbroker.wire.messages import nodes as unregister_broker
from kbroker.wire.messages import nodes as unregister_controller
from kbroker.wire.messages import reassignments as alter_partition_reassignments
from kbroker.wire.messages import reassignments as list_partition_reassignments
from kbroker.wire.messages import scram_credentials as alter_user_scram_credentials
from kbroker.wire.messages import topics as create_partitions
from kbroker.wire.messages import topics as create_topics
from kbroker.wire.messages import topics as delete_topics
from tests.handlers.metadata_plane import CLUSTER_ID, Plane, metadata_plane

ALICE = KafkaPrincipal("User", "alice")
CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)

Question = tuple[AclOperation, ResourceType, str]


class Rules:
    """An authorizer that allows ``allowed``, notes what it is asked, and lets the node itself do anything."""

    version = 0

    def __init__(self, allowed: Collection[Question] = (), *, all_but: Collection[Question] | None = None) -> None:
        self._allowed = allowed
        self._all_but = all_but
        self.asked: list[Question] = []
        self.audited: list[tuple[bool, KafkaPrincipal, str, str]] = []

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        assert host
        question = (operation, resource_type, name)
        self.asked.append(question)
        return question not in self._all_but if self._all_but is not None else question in self._allowed

    def authorize_by_resource_type(self, *_: object) -> bool:
        raise AssertionError("no API of the controller asks for that")

    def audit(
        self,
        allowed: bool,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
    ) -> None:
        self.audited.append((allowed, principal, host, api))


def _resources(cls: Callable[..., Any]) -> list[Any]:
    kinds = [(2, "t"), (4, ""), (16, "m"), (32, "g")]
    return [cls(resource_type=kind, resource_name=name, configs=[]) for kind, name in kinds]


def _fetch(version: int) -> fetch.FetchRequest:
    name, topic_id = (METADATA_TOPIC, bytes(16)) if version < 13 else ("", bytes(15) + b"\1")
    partition = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic=name, topic_id=Uuid(topic_id), partitions=[partition])], max_bytes=1000
    )


def _delete(version: int) -> delete_topics.DeleteTopicsRequest:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=["t", "none"], timeout_ms=1000)
    named = [delete_topics.DeleteTopicState(name=name) for name in ("t", "none")]
    return delete_topics.DeleteTopicsRequest(topics=named, timeout_ms=1000)


def _elect(version: int) -> elect_leaders.ElectLeadersRequest:
    topics = [elect_leaders.TopicPartitions(topic="t", partitions=[0])]
    return elect_leaders.ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=1000)


def _create(version: int) -> create_topics.CreateTopicsRequest:
    new = create_topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[new], timeout_ms=1000)


def _more(version: int) -> create_partitions.CreatePartitionsRequest:
    topic = create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=1000)


def _loggers(version: int) -> changes.IncrementalAlterConfigsRequest:
    level = changes.IncrementalAlterableConfig(name="kbroker", config_operation=0, value="INFO")
    logger = changes.IncrementalAlterConfigsResource(resource_type=8, resource_name="1", configs=[level])
    return changes.IncrementalAlterConfigsRequest(resources=[logger], validate_only=True)


def _reassign(version: int) -> alter_partition_reassignments.AlterPartitionReassignmentsRequest:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    topic = alter_partition_reassignments.ReassignableTopic(name="t", partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000)


def _describe_quorum(version: int) -> describe_quorum.DescribeQuorumRequest:
    partition = describe_quorum.PartitionData(partition_index=0)
    return describe_quorum.DescribeQuorumRequest(
        topics=[describe_quorum.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )


def _features(version: int) -> update_features.UpdateFeaturesRequest:
    level = update_features.FeatureUpdateKey(feature="group.version", max_version_level=0)
    return update_features.UpdateFeaturesRequest(feature_updates=[level], timeout_ms=1000)


def _registration(version: int) -> broker_registration.BrokerRegistrationRequest:
    return broker_registration.BrokerRegistrationRequest(broker_id=7, cluster_id=CLUSTER_ID)


def _listed(version: int) -> list_partition_reassignments.ListPartitionReassignmentsRequest:
    return list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000)


REQUESTS: Mapping[str, Callable[[int], Any]] = {
    "CreateTopics": _create,
    "DeleteTopics": _delete,
    "CreatePartitions": _more,
    "AlterConfigs": lambda _: alter_configs.AlterConfigsRequest(
        resources=_resources(alter_configs.AlterConfigsResource)
    ),
    "IncrementalAlterConfigs": lambda _: changes.IncrementalAlterConfigsRequest(
        resources=_resources(changes.IncrementalAlterConfigsResource)
    ),
    "ElectLeaders": _elect,
    "AlterPartitionReassignments": _reassign,
    "ListPartitionReassignments": _listed,
    "UpdateFeatures": _features,
    "UnregisterBroker": lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=1),
    "UnregisterController": lambda _: unregister_controller.UnregisterControllerRequest(controller_id=9),
    "DescribeQuorum": _describe_quorum,
    "AddRaftVoter": lambda _: add_raft_voter.AddRaftVoterRequest(voter_id=9),
    "RemoveRaftVoter": lambda _: remove_raft_voter.RemoveRaftVoterRequest(voter_id=9),
    "DescribeAcls": lambda _: describe_acls.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    ),
    "CreateAcls": lambda _: create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
            )
        ]
    ),
    "DeleteAcls": lambda _: delete_acls.DeleteAclsRequest(
        filters=[
            delete_acls.DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        ]
    ),
    "AlterClientQuotas": lambda _: alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.AlteredEntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="a")],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1000)],
            )
        ]
    ),
    "AlterUserScramCredentials": lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=bytes(32)
            )
        ]
    ),
    "Vote": lambda _: vote.VoteRequest(),
    "BeginQuorumEpoch": lambda _: begin_quorum_epoch.BeginQuorumEpochRequest(),
    "EndQuorumEpoch": lambda _: end_quorum_epoch.EndQuorumEpochRequest(),
    "FetchSnapshot": lambda _: fetch_snapshot.FetchSnapshotRequest(),
    "UpdateRaftVoter": lambda _: update_raft_voter.UpdateRaftVoterRequest(),
    "AlterPartition": lambda _: alter_partition.AlterPartitionRequest(broker_id=1),
    "Envelope": lambda _: envelope.EnvelopeRequest(
        request_data=b"?", request_principal=principal_bytes(ANONYMOUS), client_host_address=bytes(4)
    ),
    "BrokerRegistration": _registration,
    "BrokerHeartbeat": lambda _: broker_heartbeat.BrokerHeartbeatRequest(broker_id=1, broker_epoch=-2),
    "AllocateProducerIds": lambda _: allocate_producer_ids.AllocateProducerIdsRequest(broker_id=1, broker_epoch=-2),
    "ControllerRegistration": lambda _: controller_registration.ControllerRegistrationRequest(controller_id=9),
    "AssignReplicasToDirs": lambda _: assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=1),
    "Fetch": _fetch,
    "DescribeCluster": lambda version: describe_cluster.DescribeClusterRequest(endpoint_type=2 if version else 1),
}
"""A request of each API that the controller answers, by version. Unless it is denied, it changes something or fails."""

NAMES = {ResourceType.TOPIC: "t", ResourceType.GROUP: "g", ResourceType.CLUSTER: CLUSTER_NAME}


def rows(api: str) -> tuple[Permission, ...]:
    """The table's row for an API on a controller's listener."""
    return ON_CONTROLLER.get(api, PERMISSIONS[api])


def question(api: str, row: Permission) -> Question:
    """A row, with the name of the resource in the request above."""
    name = "new" if api == "CreateTopics" and row.resource_type is ResourceType.TOPIC else NAMES[row.resource_type]
    return (row.operation, row.resource_type, name)


def codes(value: Any) -> Iterator[int]:
    """All error codes anywhere in a response that are not NONE."""
    if isinstance(value, list):
        for each in value:
            yield from codes(each)
    elif hasattr(type(value), "__slots__") and not isinstance(value, memoryview):
        for name in type(value).__slots__:
            inner = getattr(value, name)
            if name == "error_code" or name == "topic_config_error_code":
                if inner:
                    yield inner
            else:
                yield from codes(inner)


LAST = ("DeleteTopics", "UnregisterBroker")
DENIALS = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
DENIALS.add(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def denials(response: Any) -> set[int]:
    """The errors of denials in a response."""
    return {code for code in codes(response) if code in DENIALS}


def state(plane: Plane) -> list[Any]:
    """All that the metadata say."""
    return list(plane.metadata.image.records())


async def prepared(plane: Plane) -> None:
    """Have the topic ``t``."""
    new = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    made = await plane.ask(create_topics.CreateTopicsRequest(topics=[new], timeout_ms=1000))
    assert not made.topics[0].error_code


async def ask(plane: Plane, api: str, version: int, rules: Rules) -> Any:
    """Ask as alice on the controller's listener, with these rules in force."""
    plane.services.authorizer = rules
    try:
        request = REQUESTS[api](version)
        return await plane.ask(request, version, listener="CONTROLLER", is_controller=True, principal=ALICE)
    finally:
        plane.services.authorizer = None


SERVED = {
    type(REQUESTS[api](99)).api_key: (api, registrations(CONTROLLER)[type(REQUESTS[api](99)).api_key].versions)
    for api in REQUESTS
}
CASES = [
    (api, version) for api, versions in SERVED.values() for version in range(versions.lowest, versions.highest + 1)
]

TOKENS = {f"{what}DelegationToken" for what in ("Create", "Renew", "Expire", "Describe")}

ELSEWHERE = TOKENS | {
    "ApiVersions",
    "DescribeConfigs",
    "DescribeUserScramCredentials",
    "SaslAuthenticate",
    "SaslHandshake",
}
"""APIs of a controller's listener that need nothing, or have their test with the APIs of brokers."""


def test_every_api_of_a_controller_is_tested() -> None:
    served = {row.request_class.__name__.removesuffix("Request") for row in registrations(CONTROLLER).values()}
    assert served == REQUESTS.keys() | ELSEWHERE


async def test_without_any_permission_nothing_is_served_and_nothing_changed(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await prepared(plane)
        before = state(plane)
        for api, version in CASES:
            rules = Rules()
            response = await ask(plane, api, version, rules)
            wanted = {row.error for row in rows(api) if not row.when and row.shown is not Shown.CONFIGS}
            wanted |= {row.error for row in rows(api) if row.when in ("topics", "groups", "brokers, client metrics")}
            assert denials(response) == wanted, (api, version, response)
            assert set(codes(response)) == wanted, (api, version, response)
            asked_first = [question(api, row) for row in rows(api) if row.shown is Shown.REQUEST]
            assert not asked_first or rules.asked == asked_first, (api, version)
            assert any(entry == (False, ALICE, "127.0.0.1", api) for entry in rules.audited), (api, version)
            assert state(plane) == before, (api, version)


async def test_an_empty_request_is_refused_like_any_other(tmp_path: Path) -> None:
    """Even where the answer has an error for each thing that is asked for, and nothing is."""
    refused: set[str] = set()
    closed: set[str] = set()
    async with metadata_plane(tmp_path) as plane:
        before = state(plane)
        for api, version in CASES:
            if api == "DescribeAcls" or any(row.shown is not Shown.REQUEST or row.when for row in rows(api)):
                continue
            empty = type(REQUESTS[api](version))()
            plane.services.authorizer = rules = Rules()
            try:
                response = await plane.ask(empty, version, listener="CONTROLLER", is_controller=True, principal=ALICE)
                assert denials(response) or (api, version) == ("ElectLeaders", 0), (api, version, response)
                refused.add(api)
            except CloseConnection:
                closed.add(api)
            finally:
                plane.services.authorizer = None
            assert [entry[0] for entry in rules.audited] == [False], (api, version)
            assert state(plane) == before, (api, version)
    assert {"Vote", "AlterPartition", "BrokerHeartbeat", "UpdateFeatures"} <= refused
    assert closed == {"Fetch"}, "before version 7 it has errors of partitions alone"


async def test_a_denial_that_has_no_place_in_the_answer_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer the request must not be taken for one that is allowed."""
    monkeypatch.setattr("kbroker.handlers.common.error_answers.error_answer", lambda *_: None)
    async with metadata_plane(tmp_path) as plane:
        for api in ("Vote", "AlterPartition", "UnregisterBroker"):
            with pytest.raises(CloseConnection, match="CLUSTER_AUTHORIZATION_FAILED"):
                await ask(plane, api, SERVED[type(REQUESTS[api](99)).api_key][1].highest, Rules())


async def test_with_every_permission_but_the_needed_one_it_is_denied_and_nothing_changed(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await prepared(plane)
        before = state(plane)
        for api, version in CASES:
            needed = [row for row in rows(api) if row.shown in (Shown.REQUEST, Shown.ENTRY)]
            for row in needed:
                if row.when.startswith("loggers"):
                    continue
                missing = [question(api, row), *((one.operation, *CLUSTER) for one in row.instead)]
                if api == "CreatePartitions" or "onfigs" in api:
                    # Its other entries would be changed.
                    missing += [question(api, other) for other in needed]
                response = await ask(plane, api, version, Rules(all_but=missing))
                assert row.error in denials(response), (api, version, row, response)
                assert state(plane) == before, (api, version)


async def test_with_the_needed_permission_alone_it_is_not_denied(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await prepared(plane)
        # What takes away that others need comes last.
        for api, versions in sorted(SERVED.values(), key=lambda row: row[0] in ("DeleteTopics", "UnregisterBroker")):
            allowed = [question(api, row) for row in rows(api)]
            if api == "DeleteTopics":
                allowed += [(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in ("t", "none")]
                allowed.append((AclOperation.DELETE, ResourceType.TOPIC, "none"))
            response = await ask(plane, api, versions.highest, Rules(allowed))
            assert not denials(response), (api, response)


@pytest.mark.parametrize(
    ("is_controller", "operation"), [(False, AclOperation.ALTER_CONFIGS), (True, AclOperation.CLUSTER_ACTION)]
)
@pytest.mark.parametrize("version", [0, 1])
async def test_log_levels_need_a_permission_of_the_listener(
    tmp_path: Path, version: int, is_controller: bool, operation: AclOperation
) -> None:
    async with metadata_plane(tmp_path) as plane:
        action = (operation, *CLUSTER)
        for rules, code in ((Rules(all_but=[action]), ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (Rules([action]), 0)):
            plane.services.authorizer = rules
            answer = await plane.ask(_loggers(version), version, principal=ALICE, is_controller=is_controller)
            assert answer.responses[0].error_code == code
            assert rules.asked == [action]


async def test_nobody_learns_of_files_by_the_stores_of_a_listener(tmp_path: Path) -> None:
    """Only who may set a broker's properties has the broker look at the files."""
    looked: list[Mapping[str, tuple[int, str]]] = []

    async def look(changes: Mapping[str, tuple[int, str]]) -> None:
        looked.append(changes)

    async with metadata_plane(tmp_path) as plane:
        plane.services.check_own_configs = look
        name = "listener.name.plaintext.ssl.keystore.location"
        config = changes.IncrementalAlterableConfig(name=name, config_operation=0, value="/etc/shadow")
        broker = changes.IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        request = changes.IncrementalAlterConfigsRequest(resources=[broker], validate_only=True)
        plane.services.authorizer = Rules()
        answer = await plane.ask(request, principal=ALICE)
        assert answer.responses[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not looked
        plane.services.authorizer = Rules([(AclOperation.ALTER_CONFIGS, *CLUSTER)])
        await plane.ask(request, principal=ALICE)
        assert looked == [{name: (0, "/etc/shadow")}]
