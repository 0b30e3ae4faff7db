"""A node's metadata plane without sockets: the real handlers on the real parts, the log in memory.

``ask`` sends a request through the wire format of a version, both ways, so a test sees what a client would.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from kbroker.config import BrokerConfig
from kbroker.handlers import load_handlers
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import BOTH, registrations
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.controller import brokers
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.image import ControllerImage, Endpoint
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.runtime.env import RealEnv
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.sim.quorum.disk import MemoryStore
from kbroker.types import Uuid, uuid_from_str
from kbroker.wire.compiler import decode, encode
from kbroker.wire.headers import RequestHeader
from kbroker.wire.registry import API_KEYS

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"


class InlineEnv(RealEnv):
    """The machine, with blocking work done at once and repeatable randomness."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.rng = random.Random(1)

    async def run_blocking(self, fn: Any, *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return fn(*args)


class Plane:
    """The metadata plane under test: :meth:`ask` sends it a request."""

    def __init__(self, metadata: MetadataPlane, services: Any) -> None:
        self.metadata = metadata
        self.services = services

    async def ask(
        self,
        request: Any,
        version: int | None = None,
        *,
        listener: str = "PLAINTEXT",
        is_controller: bool = False,
        principal: KafkaPrincipal = ANONYMOUS,
    ) -> Any:
        """The decoded response to ``request`` in ``version`` (the newest served)."""
        entry = registrations(BOTH)[type(request).api_key]
        version = entry.versions.highest if version is None else version
        assert version in entry.versions
        sent, _ = decode(type(request), version, encode(request, version))
        ctx = RequestContext(
            RequestHeader(entry.api_key, version, 1, "test"),
            SimpleNamespace(
                listener_name=listener, is_controller=is_controller, peer="127.0.0.1:1", principal=principal
            ),
            self.services,
        )
        response = await entry.handle(sent, ctx) if entry.is_async else entry.handle(sent, ctx)
        answer, _ = decode(API_KEYS[entry.api_key].response, version, encode(response, version))
        return answer


def properties(path: Path, **more: str) -> dict[str, str]:
    """A combined node's configuration; ``retention_ms="1"`` stands for ``retention.ms=1``."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": str(path),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


async def register_controller(metadata: MetadataPlane, endpoints: Sequence[Endpoint]) -> None:
    """Register the node as a controller with itself."""
    registration = ControllerImage(
        id=metadata.node_id,
        incarnation_id=metadata.incarnation_id,
        endpoints={endpoint.name: endpoint for endpoint in endpoints},
        features=metadata.features(),
    )
    await metadata.submit(lambda view: brokers.register_controller(view, registration))


async def register_broker(metadata: MetadataPlane, endpoints: Sequence[Endpoint], log_dirs: Sequence[Uuid]) -> None:
    """Register the node as a broker with itself, and unfence it."""
    registration = BrokerRegistration(
        broker_id=metadata.node_id,
        incarnation_id=metadata.incarnation_id,
        endpoints=endpoints,
        features=metadata.features(),
        log_dirs=log_dirs,
    )
    epoch = await metadata.submit(lambda view: brokers.register_broker(view, registration))
    await metadata.submit(lambda view: brokers.unfence_broker(view, metadata.node_id, epoch))


@asynccontextmanager
async def metadata_plane(path: Path, **more: str) -> AsyncIterator[Plane]:
    """A running plane whose one broker is registered and unfenced."""
    load_handlers()
    env = InlineEnv()
    format_log_dirs(
        env.disk,
        [str(path)],
        str(path),
        node_id=1,
        cluster_id=CLUSTER_ID,
        rng=env.rng,
        now_ms=1_700_000_000_000,
        standalone_listeners=[("CONTROLLER", "127.0.0.1", 9093)],
    )
    lines = (path / "meta.properties").read_text().splitlines()
    directory_id: Uuid = uuid_from_str(dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"])
    config = BrokerConfig.from_properties(properties(path, **more))
    metadata = MetadataPlane(
        config,
        env,
        env.network,
        cluster_id=CLUSTER_ID,
        directory_id=directory_id,
        services=lambda: services,
        store=MemoryStore(),
    )
    services: Any = SimpleNamespace(
        env=env,
        config=config,
        node_id=1,
        cluster_id=CLUSTER_ID,
        metadata=metadata,
        kept_acls=None,
        replica_manager=SimpleNamespace(fetchers=None),
        refusals={},
        authorizer=None,
        authorizer_of=None,
        telemetry=None,
        tokens=None,
        quotas=SimpleNamespace(clients=None),
        check_own_configs=None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        await register_controller(metadata, [Endpoint("CONTROLLER", "127.0.0.1", 9093)])
        await register_broker(metadata, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id])
        yield Plane(metadata, services)
        nursery.cancel_scope.cancel()
