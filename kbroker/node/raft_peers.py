"""The other replicas of the metadata log, over the network."""

from __future__ import annotations

import logging

import trio

from kbroker.env import Network
from kbroker.errors import ErrorCode
from kbroker.node.peer import GivenUp, Peer, PeerRefused, UnsupportedByPeer
from kbroker.raft_metadata import raft_requests, raft_responses
from kbroker.raft_metadata.raft_messages import OutboundRequest, Reply
from kbroker.raft_metadata.voters import VoterEndpoint
from kbroker.wire.errors import WireError

logger = logging.getLogger(__name__)


class RaftPeers:
    """A connection to each address that the core sends to. A newer request to an address gives the older one up."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        cluster_id: str,
        listener_name: str,
        request_timeout_ms: int,
        setup_timeout_ms: int,
    ) -> None:
        """``controller.quorum.request.timeout.ms`` is for a request, ``socket.connection.setup.timeout.ms`` for what
        has to come before the first."""
        self._network = network
        self._client_id = f"raft-client-{node_id}"
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._timeout = request_timeout_ms / 1000
        self._setup_timeout = setup_timeout_ms / 1000
        self._peers: dict[VoterEndpoint, Peer] = {}
        self._complaints: dict[VoterEndpoint, str] = {}

    async def send(self, outbound: OutboundRequest) -> Reply:
        """Send a request and wait for what becomes of it."""
        address = outbound.destination.address
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                self._network,
                address.host,
                address.port,
                client_id=self._client_id,
                setup_timeout=self._setup_timeout,
            )
        request = outbound.request
        failure: Exception
        try:
            message, _ = await peer.ask_versioned(
                raft_requests.MESSAGES[type(request)],
                lambda version: raft_requests.encode_request(request, self._cluster_id, version),
                within=self._timeout,
            )
            response = raft_responses.decode_response(message, self._listener_name)
            self._complaints.pop(address, None)
            return Reply(outbound.correlation_id, outbound.destination, response)
        except raft_requests.UnsupportedRpcVersion as error:
            self._complain(address, error)
            return Reply(outbound.correlation_id, outbound.destination, None, unsupported_version=True)
        except PeerRefused as error:
            self._complain(address, error)
            return Reply(outbound.correlation_id, outbound.destination, None, refused=True)
        except GivenUp:
            return Reply(outbound.correlation_id, outbound.destination, None)
        except (OSError, WireError, ValueError, UnsupportedByPeer, raft_responses.RpcError, trio.TooSlowError) as error:
            failure = error
        self._complain(address, failure)
        return Reply(outbound.correlation_id, outbound.destination, None)

    def _complain(self, address: VoterEndpoint, error: Exception) -> None:
        """Say once what is wrong with an address, until it is right again or something else is wrong."""
        level = logging.INFO
        if isinstance(error, raft_responses.RpcError):
            text = f"answers {error.code.name}"
            if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                # It will not pass: the address is wrong, or this node has another cluster's disks.
                level = logging.ERROR
                text = f"belongs to another cluster than this node, whose meta.properties say {self._cluster_id}"
        elif isinstance(error, trio.TooSlowError):
            text = "does not answer in time"
        else:
            text = str(error)
        if self._complaints.get(address) != text:
            self._complaints[address] = text
            logger.log(level, "metadata quorum: %s:%d: %s", address.host, address.port, text)

    def close(self) -> None:
        """End all connections."""
        for peer in self._peers.values():
            peer.close()
