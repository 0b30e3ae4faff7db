"""The cluster's metadata and its controller, as handlers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from kbroker.handlers.services.connection import Connection
from kbroker.handlers.services.requester import Requester
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.sessions import Heartbeat, HeartbeatState
from kbroker.raft_metadata.image import MetadataImage
from kbroker.raft_metadata.raft.messages import RaftRequest, RaftResponse
from kbroker.raft_metadata.raft.quorum_description import QuorumDescription
from kbroker.raft_metadata.topics import NewTopic
from kbroker.wire.records.metadata import UserScramCredentialRecord
from kbroker.wire.schema import Request

R = TypeVar("R")
T = TypeVar("T")


class Metadata(Protocol):
    """The cluster's metadata, and the way to its controller (``node.controller.metadata_plane``)."""

    @property
    def image(self) -> MetadataImage:
        """The latest published image."""

    @property
    def schema(self) -> ConfigSchema:
        """The configs that there are, and the sources of effective values."""

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole metadata quorum."""

    @property
    def voter_ids(self) -> Sequence[int]:
        """The node ids of the metadata quorum's voters."""

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""

    def scram_credential(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        """A user's SCRAM credential; before there is an image, the one on this node's disk."""

    def finalized_features(self) -> tuple[Mapping[str, int], int]:
        """Finalized feature levels, and the epoch that ApiVersions gives them."""

    def describe_quorum(self) -> QuorumDescription:
        """The leader of the metadata quorum, its voters and observers, and the end of each one's log."""

    def check_registration(self, registration: BrokerRegistration) -> None:
        """``ApiError`` DUPLICATE_BROKER_REGISTRATION if another node has the id and lives."""

    async def heartbeat(self, beat: Heartbeat, connection: Connection) -> HeartbeatState:
        """A broker shows on a connection that it lives; what it is to hear. ``ApiError``."""

    async def ask_quorum(self, request: RaftRequest) -> RaftResponse:
        """The Raft core's answer to another replica. ``ApiError`` BROKER_NOT_AVAILABLE on a node that stops."""

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Have this node's quorum take a level of ``kraft.version``. ``ApiError`` if it cannot."""

    async def create_topics(
        self, topics: Sequence[NewTopic], requester: Requester | None = None
    ) -> Mapping[str, object]:
        """Create topics; by name an ``ApiError``, or something else if it went well.

        ``requester`` is the client's request that needs them, whose principal must be allowed to create them. Without
        one they are created on the node's own account.
        """

    async def forward(self, request: Request[R], requester: Requester) -> R | None:
        """Another node's answer, as the active controller, to a client's request; None if it cannot be had."""

    async def submit(self, operation: Callable[[ControllerView], ControllerResult[T]]) -> T:
        """Run a step on the active controller; its response once its records are published. ``ApiError``."""
