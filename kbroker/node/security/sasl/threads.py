"""Steps of logins that may block, a few at a time in threads of their own: nothing else waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

AT_ONCE = 4
"""Steps that run at the same time; others wait for their turn."""


class LoginThreads:
    """Threads for the logins of one listener, or to one. They may all wait for a KDC that does not answer."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    async def run(self, step: Callable[..., object], *arguments: object) -> Any:
        """Call ``step`` in a thread. Who is cancelled leaves it to its end, and the turn stays taken until then."""
        return await trio.to_thread.run_sync(step, *arguments, abandon_on_cancel=True, limiter=self._limiter)
