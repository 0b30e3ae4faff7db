"""A table and its topic as one DataFrame on three secure nodes, with values by a registry that asks for a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("deltalake")
pytest.importorskip("confluent_kafka.schema_registry")

from compat_tests.security.conftest import kind_of
from compat_tests.security.servers import SecureServers
from compat_tests.security.world import World, running_world
from compat_tests.spark.test_security import Account, by_password, granted
from compat_tests.spark.test_tables import ids, run_available
from kbroker.client import Client
from kbroker.client.errors import ClientError
from kbroker.client.properties import ClientProperties
from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.client.schemas.settings import registry_settings
from kbroker.client.security import ClientSecurity, security_of
from kbroker.registry.server import RegistryServer
from kbroker.tables import spark_union
from kbroker.tables.delta import DeltaTarget
from kbroker.tables.follower import Follower, Settings
from kbroker.tables.sources import ClusterSource
from tests.patience import LONG, eventually

TOKEN = "s3cret-of-the-registry"
PARTITIONS = 3


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with running_world(SecureServers(*[kind_of(request.config)] * 3, mechanism_between="SCRAM-SHA-512")) as made:
        yield made


@pytest.fixture
def spark() -> Iterator[Any]:
    from kbroker.testing.spark import delta_session

    session = delta_session("secured")
    yield session
    session.stop()


def security(account: Account) -> ClientSecurity | None:
    return security_of(ClientProperties(account.security.java_properties()))


def follow(world: World, account: Account, topic: str, path: Path, settings: Settings) -> None:
    with Client(world.servers.bootstrap("SASL_SSL"), security=security(account)) as client:
        Follower(ClusterSource(client, topic), DeltaTarget(str(path)), settings).run(once=True)


def test_a_stream_with_avro_while_a_node_is_killed(spark: Any, world: World, tmp_path: Path) -> None:
    account, admin = (
        by_password(world, "SCRAM-SHA-512"),
        Account("admin", "SASL_SSL", world.servers.plain("admin", "SASL_SSL")),
    )
    topic = granted(world, account, world.topic(partitions=PARTITIONS), "read", "write")
    bootstrap, path = world.servers.bootstrap("SASL_SSL"), tmp_path / "table"
    with RegistryServer(bootstrap, security=security(admin), token=TOKEN) as server:
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        schemas = {"schema.registry.url": server.url, "basic.auth.user.info": f"anyone:{TOKEN}"}
        entered = SchemaRegistryClient({"url": server.url, "basic.auth.user.info": f"x:{TOKEN}"})
        told = registry_settings(None, ClientProperties(schemas))
        assert told is not None
        settings = Settings(value_format="avro", registry=SchemaRegistry(told))

        def produce(numbers: range, wider: bool = False) -> None:
            inner, more = [{"name": "x", "type": "long"}], []
            if wider:  # no columns of the version that the query begins with
                inner.insert(0, {"name": "y", "type": "string", "default": ""})
                more.append({"name": "new", "type": "double", "default": 0})
            record = {"type": "record", "name": "In", "fields": inner}
            fields = [{"name": "id", "type": "long"}, {"name": "in", "type": record}, *more]
            schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
            serialize = AvroSerializer(entered, schema)
            producer = Producer({"bootstrap.servers": bootstrap, **account.security.librdkafka(), "acks": "all"})
            for n in numbers:
                value = {"id": n, "in": {"x": n, "y": "more"}, "new": n / 2}
                context = SerializationContext(topic, MessageField.VALUE)
                producer.produce(topic, serialize(value, context), partition=n % PARTITIONS)
                producer.poll(0)
            assert producer.flush(LONG) == 0

        options = account.options | schemas | {"maxOffsetsPerTrigger": "60"}

        def union(**more: Any) -> Any:
            return spark_union(spark, f"delta:{path}", topic, bootstrap, options=options, **more)

        produce(range(300))
        follow(world, account, topic, path, settings)
        produce(range(300, 600), wider=True)
        assert sorted((row.id, row["in"].x) for row in union().collect()) == [(n, n) for n in range(600)]
        with pytest.raises(ClientError, match=r"sasl\.jaas\.config"):
            spark_union(spark, f"delta:{path}", topic, bootstrap, options={**options, "kafka.sasl.jaas.config": "x"})

        place = tmp_path / "stream"
        rows = union(checkpoint=place / "checkpoint")
        writer = rows.writeStream.format("parquet").option("path", str(place / "rows"))
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        try:
            eventually(lambda: (query.lastProgress or {}).get("batchId", 0) >= 1)
            world.servers.kill(0)
            produce(range(600, 700), wider=True)
            follow(world, account, topic, path, settings)
            produce(range(700, 800), wider=True)
            eventually(lambda: len(ids(spark.read.parquet(str(place / "rows")))) > 600, seconds=2 * LONG)
        finally:
            query.stop()
        world.servers.revive(0)
        produce(range(800, 900))
        follow(world, account, topic, path, settings)
        assert run_available(union(checkpoint=place / "checkpoint"), place) == list(range(900))
        assert ids(spark.read.format("delta").load(str(path))) == ids(union()) == list(range(900))
