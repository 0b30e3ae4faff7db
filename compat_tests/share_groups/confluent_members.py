"""A process that holds members of share groups, by librdkafka's share consumer: the lines of `members`."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

_UNKNOWN = ("share.acquire.mode",)
"""Properties of Kafka's share consumer that librdkafka's does not have."""


class Member:
    """A share consumer of confluent-kafka, subscribed as the command says."""

    def __init__(self, command: dict[str, Any]) -> None:
        properties = {name: value for name, value in command["properties"].items() if name not in _UNKNOWN}
        self._consumer = ShareConsumer({**properties, "log_level": 0})
        self._consumer.subscribe(command["topics"])

    def poll(self, command: dict[str, Any]) -> list[dict[str, Any]]:
        """The records of one poll."""
        return [
            {
                "topic": each.topic(),
                "partition": each.partition(),
                "offset": each.offset(),
                "value": (each.value() or b"").decode(),
                "delivery_count": each.delivery_count(),
            }
            for each in self._consumer.poll(command["ms"] / 1000)
            if each.error() is None
        ]

    def acknowledge(self, command: dict[str, Any]) -> None:
        """Say what became of records."""
        kind = AcknowledgeType[command["type"]]
        for topic, partition, offset in command["records"]:
            self._consumer.acknowledge_offset(topic, partition, offset, kind)

    def commit(self, command: dict[str, Any]) -> dict[str, str]:
        """By partition, the name of the error, or nothing."""
        outcome = self._consumer.commit_sync(command["ms"] / 1000)
        return {
            f"{each.topic}-{each.partition}": "" if error is None else error.args[0].name()
            for each, error in outcome.items()
        }

    def close(self, command: dict[str, Any]) -> None:
        """Leave the group."""
        self._consumer.close()


def main() -> None:
    """Do what lines say, until there are no more."""
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name, op = command["member"], command["op"]
        try:
            if op == "join":
                members[name] = Member(command)
                result = None
            else:
                result = getattr(members[name], op)(command)
            answer = {"result": result}
        except KafkaException as error:
            answer = {"error": error.args[0].name(), "message": error.args[0].str()}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
