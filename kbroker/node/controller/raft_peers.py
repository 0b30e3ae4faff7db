"""The connections to the other replicas of the metadata log."""

from __future__ import annotations

import logging

import trio

from kbroker.errors import ErrorCode
from kbroker.node.peers.peer import GivenUp, Peer, PeerRefused, UnsupportedByPeer
from kbroker.raft_metadata.raft.messages import OutboundRequest, Reply
from kbroker.raft_metadata.raft.rpcs import rpc_of
from kbroker.raft_metadata.raft.rpcs.rpc import RpcError, UnsupportedRpcVersion
from kbroker.raft_metadata.raft.voters import VoterEndpoint
from kbroker.runtime.env import Network
from kbroker.wire.errors import WireError

logger = logging.getLogger(__name__)

DENIED_SECONDS = 1.0
"""Nothing is sent for this time to a node that does not let this one take part: it asks again at once otherwise."""


class RaftPeers:
    """A connection to each address that the core sends to. A newer request to an address replaces the older one."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        cluster_id: str,
        listener_name: str,
        request_timeout_ms: int,
        setup_timeout_ms: int,
    ) -> None:
        """``request_timeout_ms``: ``controller.quorum.request.timeout.ms``, of a request on an open connection.
        ``setup_timeout_ms``: ``socket.connection.setup.timeout.ms``, of all that comes before the first request."""
        self._network = network
        self._client_id = f"raft-client-{node_id}"
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._timeout = request_timeout_ms / 1000
        self._setup_timeout = setup_timeout_ms / 1000
        self._peers: dict[VoterEndpoint, Peer] = {}
        self._last_problems: dict[VoterEndpoint, str] = {}
        self._denied_until: dict[VoterEndpoint, float] = {}
        self._newest: dict[VoterEndpoint, int] = {}
        """The last request to each address (its correlation id) that waits for the end of that time."""

    async def send(self, outbound: OutboundRequest) -> Reply:
        """Send a request and wait for its outcome."""
        address = outbound.destination.address
        if not await self._may_send(address, outbound.correlation_id):
            return Reply(outbound.correlation_id, outbound.destination, None)
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                self._network, address.host, address.port, client_id=self._client_id, setup_timeout=self._setup_timeout
            )
        request, rpc = outbound.request, rpc_of(outbound.request)
        failure: Exception
        try:
            message, _ = await peer.ask_versioned(
                rpc.wire_request,
                lambda version: rpc.encode_request(request, self._cluster_id, version),
                within=self._timeout,
            )
            response = rpc.decode_response(message, self._listener_name)
            self._last_problems.pop(address, None)
            return Reply(outbound.correlation_id, outbound.destination, response)
        except UnsupportedRpcVersion as error:
            self._log_problem(address, error)
            return Reply(outbound.correlation_id, outbound.destination, None, unsupported_version=True)
        except PeerRefused as error:
            self._log_problem(address, error)
            return Reply(outbound.correlation_id, outbound.destination, None, refused=True)
        except GivenUp:
            return Reply(outbound.correlation_id, outbound.destination, None)
        except (OSError, WireError, ValueError, UnsupportedByPeer, RpcError, trio.TooSlowError) as error:
            failure = error
            if isinstance(error, RpcError) and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                self._denied_until[address] = trio.current_time() + DENIED_SECONDS
        self._log_problem(address, failure)
        return Reply(outbound.correlation_id, outbound.destination, None)

    async def _may_send(self, address: VoterEndpoint, correlation_id: int) -> bool:
        """Wait while an address has denied; False if a newer request has taken the place of this one meanwhile."""
        until = self._denied_until.get(address)
        if until is None:
            return True
        self._newest[address] = correlation_id
        await trio.sleep_until(until)
        if self._newest.get(address) != correlation_id:
            return False
        self._denied_until.pop(address, None)
        return True

    def _log_problem(self, address: VoterEndpoint, error: Exception) -> None:
        """Log the problem with an address, once until it is solved or another one comes."""
        level = logging.INFO
        if isinstance(error, RpcError):
            text = f"answers {error.code.name}"
            if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                # It stays so: the address is wrong, or this node has another cluster's disks.
                level = logging.ERROR
                text = f"belongs to another cluster than this node, whose meta.properties say {self._cluster_id}"
            elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # It stays so until somebody changes what the other node allows.
                level = logging.ERROR
                text = "does not let this node take part: its principal needs CLUSTER_ACTION, or to be a super user"
        elif isinstance(error, trio.TooSlowError):
            text = "does not answer in time"
        else:
            text = str(error)
        if self._last_problems.get(address) != text:
            self._last_problems[address] = text
            logger.log(level, "metadata quorum: %s:%d: %s", address.host, address.port, text)

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()
