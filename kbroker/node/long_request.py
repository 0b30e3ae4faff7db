"""A request that takes long, as it is long or its answer is: others have their turns between its steps.

Answers with very many topics, partitions or groups take tens of megabytes each until they are encoded, and all
consumers with a pattern may ask at once: one is made at a time on a node, and encoded in a thread. The thread is one of
those that the node flushes its logs with: no more than one is taken from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from kbroker.handlers.registration import size_of_topics
from kbroker.node.reply_queue import encoded_frame

if TYPE_CHECKING:
    from kbroker.handlers.context import RequestContext, Services
    from kbroker.handlers.registration import Registration
    from kbroker.types import Part

MANY = 2000
"""Topics, partitions or groups of an answer from which on it is encoded in a thread: it would hold up the others for
ten milliseconds, and with 100,000 topics for half a second."""


class LongRequest:
    """The steps of a request of a connection's own task, in the order of these methods; ``end`` follows always."""

    __slots__ = ("_has_turn", "_is_large", "_is_long", "_registration", "_services")

    def __init__(self, registration: Registration, services: Services, *, is_long: bool) -> None:
        """``is_long``: the request itself is; otherwise its answer may be."""
        self._registration = registration
        self._services = services
        self._is_long = is_long
        self._is_large = False
        self._has_turn = False

    async def give_way(self) -> None:
        """Let others have a turn before a step of a long request; for one to the controller, other such steps too."""
        if not self._is_long:
            return
        if self._registration.is_for_controller:
            await self._services.long_steps.turn()
        else:
            await trio.lowlevel.checkpoint()

    async def begin(self, request: Any, context: RequestContext) -> None:
        """Give way before the handler. A request for all topics waits for its turn here, if there are many.

        For a plain handler, which gives way to nobody, the authorizer is asked about what a long request names.
        """
        await self.give_way()
        registration = self._registration
        large = registration.large_answers
        if large is not None and large.all_topics_are_asked_for(request, context.api_version):
            if size_of_topics(self._services.metadata.image.topics.by_name.values()) > MANY:
                await self._take_turn()
        if self._is_long and not registration.is_async and registration.ask_ahead is not None:
            if context.authorizer is not None:
                await registration.ask_ahead(request, context)

    async def answered(self, response: Any) -> None:
        """Give way after the handler. A large answer waits for its turn to be ``encoded``, if it has none yet."""
        await self.give_way()
        large = self._registration.large_answers
        if large is not None and large.size_of(response) > MANY:
            self._is_large = True
            if not self._has_turn:
                await self._take_turn()

    async def encoded(self, api_key: int, version: int, correlation_id: int, response: Any) -> list[Part] | None:
        """The frame of a large answer: `encoded_frame` in a thread, with its ``CloseConnection``; None of others."""
        if not self._is_large:
            return None
        return await self._services.env.run_blocking(encoded_frame, api_key, version, correlation_id, response)

    def end(self) -> None:
        """Let the next large answer have its turn."""
        if self._has_turn:
            self._has_turn = False
            self._services.long_steps.large_answers.release()

    async def _take_turn(self) -> None:
        await self._services.long_steps.large_answers.acquire()
        self._has_turn = True
