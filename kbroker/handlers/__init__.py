"""One module per API: look up, call a core, shape the reply.

Each is imported when its API is first asked for (``registration``); ``load_handlers`` imports them all.
"""

from __future__ import annotations


def load_handlers() -> None:
    """Import every handler module, for who wants to have no import in the middle of a request."""
    from kbroker.handlers.registration import BOTH, registrations

    for registration in registrations(BOTH).values():
        registration.load()
