"""Every version of every API that is served: asked of each node, by way of a forwarding broker, and in an Envelope.

Messages have fields that not all versions have. Some may be left out where they cannot be said; to set the others below
their version is a mistake, of a handler or of who makes a request. The next API with such a mistake fails here, and one
without a case in :mod:`api_cases`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.common.forwarding import error_codes
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import MISSING, FieldSpec, TypeSpec, struct_spec
from tests.node.api_cases import ALL, CASES, RACKS, World, build
from tests.node.node_harness import Client
from tests.node.patient_clock import run_patiently
from tests.node.quorum_harness import LISTENER, quorum
from tests.node.test_forwarded_requests import in_envelope
from tests.node.token_harness import PROPERTIES
from tests.patience import LONG, SHORT

NODES = 4

ENVELOPE = "in an Envelope"


def sometimes(cls: type[Any], lowest: int, highest: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields that some of the versions have, and that must not be set in the others."""
    for spec in struct_spec(cls).fields:
        versions = [version for version in range(lowest, highest + 1) if version in spec.versions]
        if not versions:
            continue
        inner = (*path, spec.name)
        if len(versions) <= highest - lowest and not spec.ignorable:
            yield inner
        struct = _struct(spec.type)
        if struct is not None:
            yield from sometimes(struct, versions[0], versions[-1], inner)


def _struct(type_spec: TypeSpec) -> type[Any] | None:
    return type_spec.struct if type_spec.element is None else type_spec.element.struct


def filled(message: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields that are not as a message begins with them."""
    for spec in struct_spec(type(message)).fields:
        value = getattr(message, spec.name)
        if value == _default(spec):
            continue
        inner = (*path, spec.name)
        yield inner
        if _struct(spec.type) is not None and value is not None:
            for each in value if isinstance(value, list) else [value]:
                yield from filled(each, inner)


def _default(spec: FieldSpec) -> Any:
    return spec.type.struct() if spec.default is MISSING and spec.type.struct is not None else spec.default


NEVER_FILLED = {
    # Only a broker with a plugin for descriptions of topologies fills these (KIP-1331).
    "StreamsGroupDescribe: groups.topology_description",
    "StreamsGroupHeartbeat: topology_description_required",
    # Apache Kafka 4.4 leaves it empty, too.
    "StreamsGroupHeartbeat: acceptable_recovery_lag_legacy",
}


def test_each_api_has_a_case() -> None:
    assert CASES.keys() == {module for module, _ in ALL.values()}


class Questions:
    """Asks, and keeps which fields of the answers had content."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shown: dict[int, set[tuple[str, ...]]] = {key: set() for key in ALL}
        self.failures: list[str] = []

    async def ask(self, client: Client, key: int, way: str) -> None:
        """Each version of an API on a connection that has to outlast it."""
        module, entry = ALL[key]
        for version in range(entry.versions.lowest, entry.versions.highest + 1):
            self.world.version = version
            for told in CASES[module](self.world):
                request = build(entry.request_class, version, told)
                where = f"{API_KEYS[key].name} v{version} {way}: {request}"
                ask = in_envelope(client, request, version) if way == ENVELOPE else client.ask(request, version)
                try:
                    with trio.fail_after(SHORT):
                        answer = await ask
                except (EOFError, trio.TooSlowError):
                    self.failures.append(f"no answer to {where}")
                    return
                self.shown[key].update(filled(answer))
                if ErrorCode.UNKNOWN_SERVER_ERROR in error_codes(answer):
                    self.failures.append(where)


def test_every_version_is_answered_with_content_by_each_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with trio.fail_after(2 * LONG):
            await ask_all()

    async def ask_all() -> None:
        options = {
            **PROPERTIES,
            "offsets_topic_num_partitions": "1",
            "transaction_state_log_num_partitions": "1",
            "group_initial_rebalance_delay_ms": "0",
            "metric_reporters": f"file:{tmp_path / 'metrics'}",
            "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            # Nobody is to be missed, however busy the machine is.
            "broker_session_timeout_ms": "30000",
            "controller_quorum_fetch_timeout_ms": "30000",
        }
        async with quorum(
            tmp_path,
            NODES,
            dynamic=True,
            initial=NODES - 1,
            roles_of={NODES: "broker"},
            racks=RACKS,
            properties=options,
        ) as cluster:
            await cluster.start(*range(1, NODES + 1))
            leader = await cluster.await_leader()
            world = World(cluster)
            await world.prepare()
            questions = Questions(world)
            for key in registrations(CONTROLLER):
                for node_id in range(1, NODES):
                    way = "of the active controller" if node_id == leader else "of another controller"
                    await questions.ask(await world.client(node_id, LISTENER), key, way)
            for key in registrations(BROKER):
                for node_id in cluster.nodes:
                    await questions.ask(await world.client(node_id), key, "of a broker")
            for key, entry in registrations(CONTROLLER).items():
                if entry.is_for_controller:
                    await questions.ask(await world.client(leader, LISTENER), key, ENVELOPE)
            assert not questions.failures
            assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert cluster.leader() == leader
            missing = set()
            for key, (_, entry) in ALL.items():
                name = API_KEYS[key].name
                fields = set(sometimes(API_KEYS[key].response, *entry.versions)) - questions.shown[key]
                missing |= {f"{name}: {'.'.join(field)}" for field in fields}
            assert missing == NEVER_FILLED

    with caplog.at_level(logging.ERROR):
        run_patiently(main)
