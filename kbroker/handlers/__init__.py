"""A module for each API (for the quorum's APIs one together), and what handlers share.

A handler looks up, calls a core, and shapes the reply. Its module is imported when its API is first asked for
(``registration``); ``load_handlers`` imports all modules.
"""

from __future__ import annotations


def load_handlers() -> None:
    """Import every handler module, for who wants to have no import in the middle of a request."""
    from kbroker.handlers.registration import BOTH, registrations

    for registration in registrations(BOTH).values():
        registration.load()
