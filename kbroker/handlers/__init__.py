"""A module for each API, or for several of one subject (`acls`, `quorum`), and what handlers share.

A handler looks up, calls a core, and shapes the reply; the connection that brings the request is in
`kbroker.node.serving`, and `services` has what handlers may ask of the node. A handler's module is imported when its
API is first asked for; ``load_handlers`` imports all modules. Begin with `registration`, then with `groups`.
"""

from __future__ import annotations


def load_handlers() -> None:
    """Import every handler module, for who wants to have no import in the middle of a request."""
    from kbroker.handlers.registration import BOTH, registrations

    for registration in registrations(BOTH).values():
        registration.load()
