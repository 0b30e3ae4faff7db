"""A request that takes long, as it is long or its answer is: others have their turns between its steps.

Answers with very many topics, partitions or groups take tens of megabytes each until they are encoded, and all
consumers with a pattern may ask at once: one is made at a time on a node, and encoded in a thread. The thread is one of
those that the node flushes its logs with: no more than one is taken from them. Garbage is not looked for meanwhile: the
collector would go through all that the node has, and the answer is freed without it, in a thread, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import trio

from kbroker.base import collector
from kbroker.base.short_turns import short_turns
from kbroker.node.serving.reply_queue import encoded_frame

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext, Services
    from kbroker.handlers.registration import Registration
    from kbroker.runtime.env import Env
    from kbroker.types import Part

logger = logging.getLogger(__name__)

_FREED_AT_ONCE: Final = 200
"""Elements of a list of an answer that are freed in a step: 100,000 take a tenth of a second."""


class LongRequest:
    """The steps of a request of a connection's own task, in the order of these methods; ``end`` follows always."""

    __slots__ = ("_encoded_lists", "_has_turn", "_is_large", "_is_long", "_registration", "_services")

    def __init__(self, registration: Registration, services: Services, *, is_long: bool) -> None:
        """``is_long``: the request itself is; otherwise its answer may be."""
        self._registration = registration
        self._services = services
        self._is_long = is_long
        self._is_large = False
        self._has_turn = False
        self._encoded_lists: Iterator[list[object]] | None = None
        """The lists of an answer that is encoded."""

    async def give_way(self) -> None:
        """Let others have a turn before a step of a long request; for one to the controller, other such steps too."""
        if not self._is_long:
            return
        if self._registration.is_for_controller:
            await self._services.long_steps.take()
        else:
            await trio.lowlevel.checkpoint()

    async def begin(self, request: object, context: RequestContext) -> None:
        """Give way before the handler. A request for all topics waits for its turn here, if there are many.

        For a plain handler, which gives way to nobody, the authorizer is asked about what a long request names.
        """
        await self.give_way()
        registration = self._registration
        large = registration.large_answers
        if large is not None and large.all_topics_are_asked_for(request, context.api_version):
            topics = self._services.metadata.image.topics.by_name.values()
            if len(topics) + sum(len(topic.partitions) for topic in topics) > context.budgets.large_answer_parts:
                await self._take_turn()
        if self._is_long and not registration.is_async and registration.prefetch_permissions is not None:
            if context.authorizer is not None:
                await registration.prefetch_permissions(request, context)

    async def answered(self, response: object) -> None:
        """Give way after the handler. A large answer waits for its turn to be ``encoded``, if it has none yet."""
        await self.give_way()
        large = self._registration.large_answers
        most = self._services.env.budgets.large_answer_parts
        if large is not None and sum(map(len, large.lists_of(response))) > most:
            self._is_large = True
            if not self._has_turn:
                await self._take_turn()

    async def encoded(self, api_key: int, version: int, correlation_id: int, response: object) -> list[Part] | None:
        """The frame of a large answer: `encoded_frame` in a thread, with its ``CloseConnection``; None of others."""
        large = self._registration.large_answers
        if large is None or not self._is_large:
            return None
        self._encoded_lists = large.lists_of(response)
        return await self._services.env.run_blocking(_encode, api_key, version, correlation_id, response)

    def end(self) -> None:
        """Let the next large answer have its turn. This one may be looked at until the caller waits for anything."""
        if not self._has_turn:
            return
        self._has_turn = False
        self._services.large_answers.release()
        if self._encoded_lists is not None:
            # The connection has nothing but the frame any more.
            trio.lowlevel.spawn_system_task(_free, self._services.env, self._encoded_lists)
            self._encoded_lists = None
        else:
            collector.resume()

    async def _take_turn(self) -> None:
        await self._services.large_answers.acquire()
        self._has_turn = True
        collector.pause()


def _encode(api_key: int, version: int, correlation_id: int, response: object) -> list[Part]:
    with short_turns():
        return encoded_frame(api_key, version, correlation_id, response)


async def _free(env: Env, lists: Iterator[list[object]]) -> None:
    """End the turn's pause of the collector once the answer is gone: it would go through it at once."""
    try:
        await env.run_blocking(_empty, lists)
    except Exception as error:  # no more threads, for one: reference counts free it, in one step
        logger.warning("a large answer is not freed in a thread: %s", error)
    finally:
        collector.resume()


def _empty(lists: Iterator[list[object]]) -> None:
    with short_turns():
        for elements in lists:
            while elements:
                del elements[-_FREED_AT_ONCE:]
