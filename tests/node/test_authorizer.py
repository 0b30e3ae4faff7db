"""A node's authorizer: by which properties there is one, and how it learns of ACLs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from kbroker.errors import ErrorCode, FatalError
from kbroker.handlers.services.requester import principal_bytes
from kbroker.node.security.authorizer import AclLoader
from kbroker.raft_metadata.controller.acls import acl_of, acl_record
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.standard import StandardAuthorizer, standard_authorizer
from kbroker.security.authorizer.types import AclOperation, AclPermission, AuthorizerNotReady, PatternType, ResourceType
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages import configs as incremental
from kbroker.wire.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from kbroker.wire.messages.envelope import EnvelopeRequest
from kbroker.wire.records.metadata import RemoveAccessControlEntryRecord
from tests.node.node_harness import Client, configuration, judge_by, running_node
from tests.node.quorum_harness import Quorum, three_nodes
from tests.patience import SHORT

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ALICE = KafkaPrincipal("User", "alice")
READ = AclOperation.READ
TOPIC = ResourceType.TOPIC


def may_read(authorizer: object, topic: str = "t") -> bool:
    assert isinstance(authorizer, StandardAuthorizer)
    return authorizer.authorize(ALICE, "10.0.0.1", READ, TOPIC, topic)


def creation(topic: str = "t") -> CreateAclsRequest:
    acl = AclCreation(
        resource_type=TOPIC,
        resource_name=topic,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=AclPermission.ALLOW,
    )
    return CreateAclsRequest(creations=[acl])


def deletion(topic: str = "t") -> DeleteAclsRequest:
    found = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    return DeleteAclsRequest(filters=[found])


# --- Properties -------------------------------------------------------------------------------------------------------


def test_super_users_are_separated_by_semicolons(tmp_path: Path) -> None:
    names = "User:CN=ops,O=x ; User:alice;;Service:s:1"
    authorizer = standard_authorizer(configuration(tmp_path, **AUTHORIZER | {"super.users": names}))
    for principal in (ALICE, KafkaPrincipal("User", "CN=ops,O=x"), KafkaPrincipal("Service", "s:1")):
        assert authorizer.authorize(principal, "::1", AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    authorizer.replace([])
    assert not authorizer.authorize(ANONYMOUS, "::1", AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")


def test_commas_between_super_users_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    standard_authorizer(configuration(tmp_path, **AUTHORIZER | {"super.users": "User:CN=a,O=b;User:c"}))
    assert caplog.messages == []
    standard_authorizer(configuration(tmp_path, **AUTHORIZER | {"super.users": "User:a, User:b"}))
    assert caplog.messages == ["super.users: User:a, User:b is one name: several are separated by semicolons"]


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:alice;bob"])
def test_a_super_user_that_is_no_principal_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(FatalError, match=r"^super\.users: expected a string in format principalType:principalName"):
        standard_authorizer(configuration(tmp_path, **AUTHORIZER | {"super.users": text}))


@pytest.mark.parametrize(("text", "expected"), [("true", True), (" TRUE ", True), ("false", False), ("yes", False)])
def test_whether_everybody_may_use_what_has_no_acl(tmp_path: Path, text: str, expected: bool) -> None:
    properties = AUTHORIZER | {"super.users": "", "allow.everyone.if.no.acl.found": text}
    authorizer = standard_authorizer(configuration(tmp_path, **properties))
    authorizer.replace([])
    assert may_read(authorizer) is expected


def test_a_plain_node_has_none_and_imports_none(tmp_path: Path) -> None:
    program = f"""
import sys, trio
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.node.node_harness import running_node

async def test():
    async with running_node(Path({str(tmp_path)!r})) as node:
        assert node.broker.services.authorizer is None
    found = {{name for name in sys.modules if name.startswith("kbroker.security")}}
    assert not found & {{f"kbroker.security.authorizer.{{name}}" for name in ("acls", "hosts", "settings", "standard")}}
    assert "kbroker.node.security.authorizer" not in sys.modules

trio.run(test)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- Learning of ACLs -------------------------------------------------------------------------------------------------


def image_of(*records: object, before: MetadataImage = EMPTY_IMAGE) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(before)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(OffsetAndEpoch(before.offset + len(records), 1))


def test_a_node_that_is_no_super_user_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = StandardAuthorizer(super_users=[KafkaPrincipal("User", "node1")])
    loader = AclLoader(authorizer)

    def asks(name: str, operation: AclOperation = AclOperation.CLUSTER_ACTION) -> bool:
        principal = KafkaPrincipal("User", name)
        return authorizer.authorize(principal, "127.0.0.1", operation, ResourceType.CLUSTER, "kafka-cluster")

    assert asks("node1")
    for name, operation in (("node2", AclOperation.CLUSTER_ACTION),) * 2 + (("alice", AclOperation.ALTER),):
        with pytest.raises(AuthorizerNotReady):
            asks(name, operation)
    with pytest.raises(AuthorizerNotReady):
        asks("a\nb")
    assert [line.partition(", and is not in super.users: ")[0] for line in caplog.messages] == [
        "User:node2 (127.0.0.1) asks for CLUSTER_ACTION before there are ACLs",
        "'User:a\\nb' (127.0.0.1) asks for CLUSTER_ACTION before there are ACLs",
    ]
    loader.begin(EMPTY_IMAGE)
    caplog.clear()
    assert not asks("node3") and not [each for each in caplog.records if each.levelname == "WARNING"]


def test_an_image_is_taken_over_as_a_whole() -> None:
    first, second, third = (
        acl_record(
            Uuid(bytes([number]) * 16), Acl(TOPIC, "t", PatternType.LITERAL, "User:alice", "*", READ, permission)
        )
        for number, permission in ((1, AclPermission.ALLOW), (2, AclPermission.DENY), (3, AclPermission.ALLOW))
    )
    authorizer = StandardAuthorizer()
    loader = AclLoader(authorizer)
    loader.on_image(*image_of(first))
    assert not authorizer.loaded, "which may be of long ago"
    loader.begin(EMPTY_IMAGE)
    assert authorizer.loaded and not may_read(authorizer)
    delta, one = image_of(first)
    loader.on_image(delta, one)
    version = authorizer.version
    assert may_read(authorizer)
    loader.on_image(*image_of(before=one))  # nothing of ACLs
    assert authorizer.version == version
    delta, two = image_of(second, before=one)
    loader.on_image(delta, two)
    assert not may_read(authorizer) and authorizer.version != version
    delta, three = image_of(RemoveAccessControlEntryRecord(id=second.id), before=two)
    loader.on_image(delta, three)
    assert may_read(authorizer) and authorizer.count == 1
    # Very many at once.
    many = [
        acl_record(Uuid(number.to_bytes(16, "big")), acl_of(second)._replace(resource_name=f"t{number}"))
        for number in range(1, 200)
    ]
    delta, four = image_of(*many, before=three)
    loader.on_image(delta, four)
    assert authorizer.count == 200 and not may_read(authorizer, "t7") and may_read(authorizer)
    loader.on_image(*image_of(*(RemoveAccessControlEntryRecord(id=each.id) for each in many), before=four))
    assert authorizer.count == 1 and may_read(authorizer)
    # A snapshot, which has nothing of what was before.
    loader.on_image(*image_of(third))
    assert may_read(authorizer) and authorizer.count == 1
    loader.on_image(*image_of())
    assert not may_read(authorizer) and authorizer.count == 0


async def test_a_node_knows_its_acls_before_it_serves(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AUTHORIZER) as node:
        client = await node.connect()
        assert not may_read(node.broker.services.authorizer)
        assert (await client.ask(creation())).results[0].error_code == 0
        assert may_read(node.broker.services.authorizer)
        await node.broker.metadata.snapshots.write()
        assert (await client.ask(creation("u"))).results[0].error_code == 0
    async with running_node(tmp_path, **AUTHORIZER) as node:
        authorizer = node.broker.services.authorizer
        assert may_read(authorizer) and may_read(authorizer, "u")  # of the snapshot, and of the log behind it


async def test_before_that_who_is_no_super_user_is_to_ask_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a controller's listener, which is open so early."""
    async with running_node(tmp_path, **AUTHORIZER | {"super.users": "User:admin"}) as node:
        judge_by(node.broker.services, StandardAuthorizer())
        client = await node.connect("CONTROLLER")
        for request in (creation(), deletion()):
            answer = await client.ask(request)
            [result] = answer.results if isinstance(request, CreateAclsRequest) else answer.filter_results
            assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        # By way of a broker's listener, and of an Envelope as another broker sends it.
        broker = await node.connect()
        assert (await broker.ask(creation())).results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        judge_by(node.broker.services, StandardAuthorizer(super_users=[ANONYMOUS]))
        inside = b"".join(Conversation("c").send(creation(), 3))[4:]
        envelope = EnvelopeRequest(
            request_data=inside,
            request_principal=principal_bytes(KafkaPrincipal("User", "alice")),
            client_host_address=bytes([127, 0, 0, 1]),
        )
        answer = await client.ask(envelope)
        assert answer.error_code == 0 and answer.response_data is not None
    assert "Traceback" not in caplog.text


async def everywhere(cluster: Quorum, expected: bool) -> None:
    """Each node decides by the last change."""
    await cluster.until(lambda: all(may_read(node.services.authorizer) is expected for node in cluster.nodes.values()))


async def change(client: Client, request: CreateAclsRequest | DeleteAclsRequest) -> None:
    answer = await client.ask(request)
    [result] = answer.results if isinstance(request, CreateAclsRequest) else answer.filter_results
    assert result.error_code == 0, result


async def test_every_node_decides_by_the_same_acls(tmp_path: Path) -> None:
    """Whichever broker is asked to change them."""
    async with three_nodes(tmp_path, **AUTHORIZER) as cluster:
        for node_id in (1, 2, 3):
            client = await cluster.node(node_id).connect()
            await change(client, creation())
            await everywhere(cluster, True)
            await change(client, deletion())
            await everywhere(cluster, False)
            await client.stream.aclose()
        client = await cluster.node(1).connect()
        await change(client, creation())
        await everywhere(cluster, True)
        await cluster.stop(3)
        await cluster.start(3)
        assert may_read(cluster.nodes[3].services.authorizer)


async def test_super_users_set_at_run_time_change_nothing_and_each_node_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As with Apache Kafka's authorizer, for all brokers or for one of them."""

    def told(name: str) -> int:
        return sum(message.startswith(f"{name} is set at run time, without effect") for message in caplog.messages)

    async def alter(client: Client, broker: str, name: str, value: str | None) -> None:
        change = incremental.IncrementalAlterableConfig(
            name=name, config_operation=0 if value is not None else 1, value=value
        )
        resource = incremental.IncrementalAlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
        answer = await client.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer

    async with three_nodes(tmp_path, **AUTHORIZER) as cluster:
        client = await cluster.node(1).connect()
        await alter(client, "", "super.users", "User:alice")
        await cluster.until(lambda: told("super.users") == 3)
        await alter(await cluster.node(2).connect(), "2", "allow.everyone.if.no.acl.found", "true")
        await cluster.until(lambda: told("allow.everyone.if.no.acl.found") == 1)
        await alter(client, "", "log.cleaner.backoff.ms", "9000")
        await everywhere(cluster, False)
        await cluster.stop(3)
        await cluster.start(3)
        await cluster.until(lambda: told("super.users") == 4)
        await everywhere(cluster, False)
        await alter(client, "", "super.users", None)
        await alter(client, "", "super.users", "User:alice")
        await cluster.until(lambda: told("super.users") == 7)


async def test_a_node_that_comes_back_decides_by_no_acls_of_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what it has missed in pieces, each of them committed; an ACL may be taken back in the last of them."""
    seen: list[bool] = []
    begun: list[bool] = []
    on_image, begin = AclLoader.on_image, AclLoader.begin

    def watched_image(loader: AclLoader, delta: MetadataDelta, image: MetadataImage) -> None:
        on_image(loader, delta, image)
        seen.append(loader._authorizer.loaded)

    def watched_begin(loader: AclLoader, image: MetadataImage) -> None:
        begin(loader, image)
        begun.append(may_read(loader._authorizer))

    async with three_nodes(tmp_path, **AUTHORIZER, **{"controller.quorum.fetch.max.bytes": "1"}) as cluster:
        leader = await cluster.await_leader()
        away = next(node_id for node_id in cluster.nodes if node_id != leader)
        client = await cluster.node(leader).connect()
        await change(client, creation())
        await everywhere(cluster, True)
        await cluster.stop(away)
        for number in range(5):
            await change(client, creation(f"t{number}"))
        await change(client, deletion())
        monkeypatch.setattr(AclLoader, "on_image", watched_image)
        monkeypatch.setattr(AclLoader, "begin", watched_begin)
        await cluster.start(away)
        await everywhere(cluster, False)
    assert seen[:5] == [False] * 5
    assert begun == [False]


async def test_what_no_node_can_read_is_not_passed_on(tmp_path: Path) -> None:
    """The connection to the active controller is for others' requests, too."""
    async with three_nodes(tmp_path, **AUTHORIZER) as cluster:
        follower = next(node_id for node_id in cluster.nodes if node_id != cluster.leader())
        good = await cluster.node(follower).connect()
        await change(good, creation())
        unreadable = creation()
        unreadable.creations[0].operation = AclOperation.UNKNOWN
        unfiltered = deletion()
        unfiltered.filters[0].operation = AclOperation.UNKNOWN
        with trio.fail_after(SHORT):
            for wrong in (unreadable, unfiltered):
                client = await cluster.node(follower).connect()
                await client.send(wrong)
                assert await client.closed()
        await change(good, deletion())
