"""Users without authentication, and an authorizer that is told what each may not do."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from tests.node.node_harness import Client, Node, judge_by

Asked = tuple[AclOperation, ResourceType]

NOBODY = "nobody"
"""A user for whom nothing is allowed."""


@dataclass
class ByName:
    """An authorizer: what is denied to users, by their names. Everybody else, the node among them, may do all."""

    denied: dict[str, frozenset[Asked]] = field(default_factory=dict)
    hidden: str = ""
    """A resource that is denied to all users."""
    version: int = 1
    asked: list[tuple[str, Asked, str]] = field(default_factory=list)
    """User, operation and type, and resource of each decision for a user that has a rule or is named ``admin``."""
    asked_by_type: set[Asked] = field(default_factory=set)
    """Operations and types that were asked for any resource; the audit log does not hear of these."""
    audited: list[tuple[bool, str, Asked, str, str]] = field(default_factory=list)
    """Decision, user, operation and type, resource, and API of each line of the audit log."""

    def deny(self, user: str, *asked: Asked) -> None:
        """Deny this, and nothing else, to a user from now on."""
        self.denied[user] = frozenset(asked)
        self.version += 1

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Note the question, and deny what a test has denied; the anonymous principal may do everything."""
        assert host == "127.0.0.1"
        if principal == ANONYMOUS:
            return True
        self.asked.append((principal.name, (operation, resource_type), name))
        if principal.name == NOBODY or (self.hidden and name == self.hidden):
            return False
        return (operation, resource_type) not in self.denied.get(principal.name, ())

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Note the question, and answer it as for a resource without a name."""
        self.asked_by_type.add((operation, resource_type))
        return self.authorize(principal, host, operation, resource_type, "")

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
        """Keep what an audit log would have."""
        self.audited.append((allowed, principal.name, (operation, resource_type), name, api))


class ButOneTopic(ByName):
    """Denies the topic ``secret`` to all users."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Allow all but the topic; the anonymous principal may use that, too."""
        return principal == ANONYMOUS or name != "secret"


async def connect_as(node: Node, user: str) -> Client:
    """A new connection that belongs to a user."""
    client = await node.connect()
    await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 0)
    host, port = client.stream.socket.getsockname()
    for listener in node.broker.listeners:
        for connection in listener.connections:
            if connection.peer == f"{host}:{port}":
                connection.principal = KafkaPrincipal(USER_TYPE, user)
                return client
    raise LookupError(f"{host}:{port}")


def under(node: Node) -> ByName:
    """Give a node an authorizer, for the connections from now on."""
    authorizer = ByName()
    judge_by(node.broker.services, authorizer)
    return authorizer
