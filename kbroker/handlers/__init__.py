"""One module per API: authorize, look up, call a core, shape the reply.

``load_handlers`` imports them all, which is what registers them (``registration``).
"""

from __future__ import annotations

import importlib
import pkgutil

_NOT_APIS = frozenset(
    {"registration", "context", "leaders", "internal_topics", "transactional_produce", "transactions"}
)


def load_handlers() -> None:
    """Import every handler module of this package, so that its registrations are in place."""
    for module in pkgutil.iter_modules(__path__):
        if module.name not in _NOT_APIS:
            importlib.import_module(f"{__name__}.{module.name}")
