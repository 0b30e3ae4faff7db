"""Kafka's own command-line tools on this broker and on Apache Kafka: what they print must be the same."""

from __future__ import annotations

import pytest


def feature(title: str) -> pytest.MarkDecorator:
    """The row of docs/compatibility.md that a test fills."""
    return pytest.mark.feature("java tools", "Kafka's command-line tools", title)
