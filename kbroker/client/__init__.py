"""A small synchronous client of the Kafka protocol, for the command and for tests of clusters. It is no public API.

It knows nothing of kbroker's own broker and works on any broker that speaks the protocol. It has no threads: a call
blocks, and every call is bounded by a deadline. Requests to several brokers go out together. What people see of it is
in `kbroker.tools`. Begin with ``cluster.py``.

- ``connection.py``: one connection, version negotiation, pipelined requests.
- ``cluster.py``: bootstrap, metadata, routing to nodes and coordinators, retries; ``leaders.py``: routing to leaders.
- ``topics.py``, ``groups.py``, ``configs.py``, ``nodes.py``: administrators' questions, as values.
- ``producer.py``, ``reader.py``: records in and out.
"""

from kbroker.client.cluster import Client
from kbroker.client.errors import ApiNotServed, ClientError, ConnectionFailed, RequestTimedOut, ResponseError

__all__ = ["ApiNotServed", "Client", "ClientError", "ConnectionFailed", "RequestTimedOut", "ResponseError"]
