"""Less patience for some questions than for others: a page or a screen must not wait for a broker that is down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kbroker.client.cluster import Client


@contextmanager
def patience(client: Client, seconds: float) -> Iterator[None]:
    """Let operations within the block take no longer than so many seconds each."""
    before = client.timeout
    client.timeout = min(before, seconds)
    try:
        yield
    finally:
        client.timeout = before
