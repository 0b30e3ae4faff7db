"""A rejoin that kafka-python 3.0.12 has begun and may forget (README.md says how), and a word that reminds it."""

from __future__ import annotations

from typing import Any


def remind(consumer: Any) -> None:
    """Have the next ``poll()`` of a ``KafkaConsumer`` of a group take up a rejoin that the last one left under way."""
    coordinator = consumer._coordinator
    if coordinator._join_task is not None:
        coordinator.request_rejoin()
