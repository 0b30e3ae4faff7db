"""Who asks something of a group."""

from __future__ import annotations

from typing import NamedTuple


class ClientContext(NamedTuple):
    """Who sends a request, as far as a group remembers it."""

    client_id: str
    client_host: str
    api_version: int
