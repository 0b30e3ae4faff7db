"""The client of a request to a group."""

from __future__ import annotations

from typing import NamedTuple


class ClientContext(NamedTuple):
    """The sender of a request, as a group remembers it."""

    client_id: str
    client_host: str
    api_version: int
