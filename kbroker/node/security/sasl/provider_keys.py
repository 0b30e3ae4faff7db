"""A token provider's keys as a node has them: asked for in a thread, kept, and renewed while clients go on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import trio

from kbroker.security.sasl.oauthbearer.compact import split_token
from kbroker.security.sasl.oauthbearer.http import ProviderError, Url, read_file
from kbroker.security.sasl.oauthbearer.keys import KeySet, UnknownKey, parse_key_set
from kbroker.security.sasl.oauthbearer.refresh import RefreshTimes
from kbroker.security.sasl.oauthbearer.token import TokenRefused

logger = logging.getLogger(__name__)


class ProviderKeys:
    """The keys of one provider. Nothing is asked before :meth:`run`, which must run while tokens are judged."""

    def __init__(self, ask: Callable[[], bytes], times: RefreshTimes, source: str) -> None:
        """``ask`` blocks until the provider has answered, for some seconds at the most; ``ProviderError``.

        ``source`` is the provider's address, for the log.
        """
        self._ask = ask
        self._times = times
        self._source = source
        self._thread = trio.CapacityLimiter(1)
        """Of its own: a provider that hangs must not hold those that the rest of a node needs."""
        self._keys: KeySet | None = None
        self._wanted = trio.Event()
        self._asked = trio.Event()

    async def verified(self, token: str, wait: float) -> dict[str, Any]:
        """The claims of a token that is signed by one of the keys; ``TokenRefused`` if it is not.

        Keys that are not there are waited for, ``wait`` seconds at most.
        """
        keys = self._keys
        if keys is None:
            split_token(token)  # what is none, or is too long, waits for nobody
        else:
            try:
                return keys.verified(token)
            except UnknownKey:
                if not self._times.may_ask_for_unknown(trio.current_time()):
                    raise
                self._wanted.set()
        with trio.move_on_after(wait):
            await self._asked.wait()
        if self._keys is None:
            raise TokenRefused("the provider's keys are not there yet")
        return self._keys.verified(token)

    async def run(self) -> None:
        """Ask for the keys as often as is due, until cancelled."""
        while True:
            self._wanted = trio.Event()
            await self._refresh()
            self._asked.set()
            self._asked = trio.Event()
            with trio.move_on_at(self._times.next_at):
                await self._wanted.wait()

    async def _refresh(self) -> None:
        try:
            text = await trio.to_thread.run_sync(self._ask, abandon_on_cancel=True, limiter=self._thread)
            self._keys = parse_key_set(text)
        except (ProviderError, ValueError) as error:
            told = str(error) if isinstance(error, ProviderError) else f"{self._source} gives no key set: {error}"
            logger.warning("the token provider's keys could not be had; those from before stay: %s", told)
            self._times.failed(trio.current_time())
        else:
            logger.info("%d keys of the token provider %s", len(self._keys), self._source)
            self._times.succeeded(trio.current_time())


class FileKeys:
    """The keys in a file, which is read again when it has changed."""

    def __init__(self, url: Url) -> None:
        """``ProviderError`` or ``ValueError`` if there are none."""
        self._url = url
        self._seen = self._mark()
        self._keys = parse_key_set(read_file(url))

    def _mark(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._url.target)
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    async def verified(self, token: str, wait: float) -> dict[str, Any]:
        """The claims of a token that is signed by one of the keys; ``TokenRefused`` if it is not."""
        mark = self._mark()
        if mark != self._seen:
            self._seen = mark
            try:
                self._keys = parse_key_set(read_file(self._url))
            except (ProviderError, ValueError) as error:
                logger.warning("the token provider's keys could not be had; those from before stay: %s", error)
        return self._keys.verified(token)
