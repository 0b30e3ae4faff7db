"""The client of a request to a group."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.value_types import NamedTuple


class ClientContext(NamedTuple):
    """The sender of a request, as a group remembers it."""

    client_id: str
    client_host: str
    api_version: int
    may_see: Callable[[str], bool] | None = None
    """Whether the client may describe the topic of this name; None if there is nobody to ask."""
