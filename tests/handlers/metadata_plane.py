"""A node's metadata plane without sockets: the real handlers on the real driver, its log in memory.

``ask`` sends a request through the wire format of a version, both ways, so a test sees what a client would.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from kbroker.config import BrokerConfig
from kbroker.env import RealEnv
from kbroker.handlers import load_handlers
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import BOTH, registrations
from kbroker.node.raft_driver import RaftDriver
from kbroker.raft_metadata.image import Endpoint
from kbroker.raft_metadata.replicated_log import MemoryStore
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.types import Uuid, uuid_from_str
from kbroker.wire.compiler import decode, encode
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
    """What a test talks to."""

    def __init__(self, driver: RaftDriver, services: Any) -> None:
        self.driver = driver
        self.services = services

    async def ask(
        self, request: Any, version: int | None = None, *, listener: str = "PLAINTEXT", is_controller: bool = False
    ) -> Any:
        """The decoded response to ``request`` in ``version`` (the newest served)."""
        entry = registrations(BOTH)[type(request).api_key]
        version = entry.versions.max if version is None else version
        assert version in entry.versions
        sent, _ = decode(type(request), version, encode(request, version))
        ctx = RequestContext(
            SimpleNamespace(api_version=version, client_id="test", correlation_id=1),
            SimpleNamespace(listener_name=listener, is_controller=is_controller, peer="test"),
            self.services,
        )
        response = await entry.handle(sent, ctx)
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
    driver = RaftDriver(config, env, cluster_id=CLUSTER_ID, directory_id=directory_id, store=MemoryStore())
    services = SimpleNamespace(
        env=env,
        config=config,
        node_id=1,
        cluster_id=CLUSTER_ID,
        metadata=driver,
        replica_manager=SimpleNamespace(fetchers=None),
        extra={},
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.run)
        await driver.register_controller([Endpoint("CONTROLLER", "127.0.0.1", 9093)])
        await driver.register_broker([Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [directory_id])
        yield Plane(driver, services)
        nursery.cancel_scope.cancel()
