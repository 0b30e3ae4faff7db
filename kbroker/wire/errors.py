"""What is raised when bytes from outside break the protocol."""

from __future__ import annotations


class WireError(Exception):
    """The peer's bytes are not what the protocol allows."""
