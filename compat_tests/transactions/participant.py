"""A process that holds transactional producers of one Python client: ``python -m compat_tests.transactions.participant
CLIENT``.

It takes one JSON command a line and answers each with one JSON line, in order. The processes in Java and JavaScript
(``Participant.java``, ``participant.js``) take the same commands:

``open`` a producer and initialize it; ``begin``, ``send`` values to a partition and await their acknowledgement,
``commit``, ``abort``; ``send_offsets`` of a group that has no members; ``copy`` a topic into another in transactions of
some records each, as a member of a group; ``read`` a partition from its start to its end; ``close``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

from tests.patience import LONG

Command = dict[str, Any]


class Participant:
    """Base of the participants: producers by name."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.producers: dict[str, Any] = {}

    def run(self, command: Command) -> Any:
        """Carry out a command."""
        return getattr(self, command["op"])(command)


class Confluent(Participant):
    """confluent-kafka, over librdkafka."""

    def open(self, command: Command) -> None:
        import confluent_kafka

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": command["transactional_id"],
                "transaction.timeout.ms": command["timeout_ms"],
                "log_level": 0,
            }
        )
        producer.init_transactions(LONG)
        self.producers[command["producer"]] = producer

    def begin(self, command: Command) -> None:
        self.producers[command["producer"]].begin_transaction()

    def send(self, command: Command) -> None:
        producer = self.producers[command["producer"]]
        failed: list[str] = []
        for value in command["values"]:
            producer.produce(
                command["topic"],
                value.encode(),
                partition=command["partition"],
                on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
            )
        left = producer.flush(LONG)
        if failed or left:
            raise RuntimeError(f"{left} records unsent, {failed[:1]}")

    def commit(self, command: Command) -> None:
        self.producers[command["producer"]].commit_transaction(LONG)

    def abort(self, command: Command) -> None:
        self.producers[command["producer"]].abort_transaction(LONG)

    def send_offsets(self, command: Command) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": command["group"], "log_level": 0})
        offsets = [TopicPartition(topic, partition, offset) for topic, partition, offset in command["offsets"]]
        self.producers[command["producer"]].send_offsets_to_transaction(
            offsets, consumer.consumer_group_metadata(), LONG
        )
        consumer.close()

    def copy(self, command: Command) -> int:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": command["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
                **({"group.instance.id": command["instance"]} if "instance" in command else {}),
            }
        )
        consumer.subscribe([command["source"]])
        producer = self.producers[command["producer"]]
        count, deadline = 0, time.monotonic() + command.get("seconds", LONG)
        while count < command["count"] and time.monotonic() < deadline:
            messages = [each for each in consumer.consume(command["batch"], 0.5) if each.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for each in messages:
                producer.produce(command["target"], each.value(), partition=each.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), LONG
            )
            producer.commit_transaction(LONG)
            count += len(messages)
        consumer.close()
        return count

    def read(self, command: Command) -> list[str]:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": command["isolation"],
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(command["topic"], command["partition"], 0)])
        values = []
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                break
            else:
                raise RuntimeError(str(error))
        consumer.close()
        return values

    def close(self, command: Command) -> None:
        self.producers.pop(command["producer"])


class KafkaPython(Participant):
    """kafka-python."""

    def open(self, command: Command) -> None:
        import kafka

        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=command["transactional_id"],
            transaction_timeout_ms=command["timeout_ms"],
        )
        producer.init_transactions()
        self.producers[command["producer"]] = producer

    def begin(self, command: Command) -> None:
        self.producers[command["producer"]].begin_transaction()

    def send(self, command: Command) -> None:
        producer = self.producers[command["producer"]]
        futures = [
            producer.send(command["topic"], value.encode(), partition=command["partition"])
            for value in command["values"]
        ]
        producer.flush(LONG)
        for future in futures:
            future.get(LONG)

    def commit(self, command: Command) -> None:
        self.producers[command["producer"]].commit_transaction()

    def abort(self, command: Command) -> None:
        self.producers[command["producer"]].abort_transaction()

    def send_offsets(self, command: Command) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for topic, partition, offset in command["offsets"]
        }
        self.producers[command["producer"]].send_offsets_to_transaction(offsets, command["group"])

    def _consumer(self, isolation: str, **options: Any) -> Any:
        import kafka

        return kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=isolation,
            **options,
        )

    def copy(self, command: Command) -> int:
        from kafka.structs import OffsetAndMetadata

        from compat_tests.kafka_python.rejoining import remind

        consumer = self._consumer("read_committed", group_id=command["group"])
        consumer.subscribe([command["source"]])
        producer = self.producers[command["producer"]]
        count, deadline = 0, time.monotonic() + command.get("seconds", LONG)
        while count < command["count"] and time.monotonic() < deadline:
            found = consumer.poll(2 * LONG, max_records=command["batch"])
            remind(consumer)
            if not found:
                continue
            producer.begin_transaction()
            offsets = {}
            for partition, records in found.items():
                for each in records:
                    producer.send(command["target"], each.value, partition=each.partition)
                offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
                count += len(records)
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
        consumer.close()
        return count

    def read(self, command: Command) -> list[str]:
        from kafka.structs import TopicPartition

        consumer = self._consumer(command["isolation"])
        partition = TopicPartition(command["topic"], command["partition"])
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        values = []
        deadline = time.monotonic() + LONG
        while consumer.position(partition) < end and time.monotonic() < deadline:
            for records in consumer.poll(2 * LONG).values():
                values += [each.value.decode() for each in records]
        consumer.close()
        return values

    def close(self, command: Command) -> None:
        self.producers.pop(command["producer"]).close(timeout=1)


class Aio(Participant):
    """aiokafka, on an event loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, command: Command) -> Any:
        coroutine: Coroutine[Any, Any, Any] = getattr(self, command["op"])(command)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LONG)

    async def open(self, command: Command) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=command["transactional_id"],
            transaction_timeout_ms=command["timeout_ms"],
        )
        await producer.start()
        self.producers[command["producer"]] = producer

    async def begin(self, command: Command) -> None:
        await self.producers[command["producer"]].begin_transaction()

    async def send(self, command: Command) -> None:
        producer = self.producers[command["producer"]]
        sent = [
            await producer.send(command["topic"], value.encode(), partition=command["partition"])
            for value in command["values"]
        ]
        await asyncio.wait_for(asyncio.gather(*sent), LONG)

    async def commit(self, command: Command) -> None:
        await self.producers[command["producer"]].commit_transaction()

    async def abort(self, command: Command) -> None:
        await self.producers[command["producer"]].abort_transaction()

    async def send_offsets(self, command: Command) -> None:
        from aiokafka import TopicPartition

        offsets = {TopicPartition(topic, partition): offset for topic, partition, offset in command["offsets"]}
        await self.producers[command["producer"]].send_offsets_to_transaction(offsets, command["group"])

    def _consumer(self, *topics: str, isolation: str, **options: Any) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=isolation,
            **options,
        )

    async def copy(self, command: Command) -> int:
        consumer = self._consumer(command["source"], isolation="read_committed", group_id=command["group"])
        await consumer.start()
        producer = self.producers[command["producer"]]
        count, deadline = 0, time.monotonic() + command.get("seconds", LONG)
        while count < command["count"] and time.monotonic() < deadline:
            found = await consumer.getmany(timeout_ms=500, max_records=command["batch"])
            if not found:
                continue
            async with producer.transaction():
                for records in found.values():
                    for each in records:
                        await producer.send(command["target"], each.value, partition=each.partition)
                    count += len(records)
                offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
                await producer.send_offsets_to_transaction(offsets, command["group"])
        await consumer.stop()
        return count

    async def read(self, command: Command) -> list[str]:
        from aiokafka import TopicPartition

        consumer = self._consumer(isolation=command["isolation"])
        await consumer.start()
        partition = TopicPartition(command["topic"], command["partition"])
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        if command["isolation"] == "read_committed":
            # It tells the high watermark, and stops at the last stable offset.
            while (stable := consumer.last_stable_offset(partition)) is None:  # until the first Fetch is answered
                await consumer.getmany(timeout_ms=500, max_records=1)
            end = min(end, stable)
            await consumer.seek_to_beginning(partition)
        values = []
        deadline = time.monotonic() + LONG
        while await consumer.position(partition) < end and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [each.value.decode() for each in records]
        await consumer.stop()
        return values

    async def close(self, command: Command) -> None:
        await self.producers.pop(command["producer"]).stop()


CLIENTS = {"confluent-kafka": Confluent, "kafka-python": KafkaPython, "aiokafka": Aio}


def main(client: str, bootstrap: str) -> None:
    """Serve commands until the input ends."""
    participant = CLIENTS[client](bootstrap)
    for line in sys.stdin:
        command = json.loads(line)
        reply: dict[str, Any] = {"id": command["id"]}
        try:
            reply["result"] = participant.run(command)
        except BaseException as problem:
            reply["error"] = f"{type(problem).__name__}: {problem}"
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
