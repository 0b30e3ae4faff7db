"""The shortcut of a Heartbeat that a member sends again and again. It saves the codec: the handler judges each.

The handler also asks the authorizer each time.
"""

from __future__ import annotations

from typing import ClassVar

from kbroker.errors import ErrorCode
from kbroker.handlers.classic_groups import handle_heartbeat
from kbroker.handlers.common.context import RequestContext
from kbroker.node.shortcuts.cache import Shortcut
from kbroker.node.shortcuts.template import RequestTemplate, response_template
from kbroker.runtime.round import Round
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse


class HeartbeatShortcut(Shortcut):
    """One member's heartbeat, and the response without an error."""

    __slots__ = ("_ctx", "_reply", "_request", "_template")

    grows: ClassVar[bool] = False

    def __init__(self, frame: memoryview, request: HeartbeatRequest, ctx: RequestContext) -> None:
        self._template = RequestTemplate(frame)
        self._request = request
        self._ctx = ctx
        self._reply = response_template(ctx.header.api_key, ctx.header.api_version, HeartbeatResponse())

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | None:
        """Keep the session. An error lets the request through to its handler: to be heard twice is as once."""
        found = self._template.match(frame)
        if found is None or handle_heartbeat(self._request, self._ctx).error_code != ErrorCode.NONE:
            return None
        return self._reply(*found)


def remember(
    frame: memoryview, request: HeartbeatRequest, response: object, ctx: RequestContext, known: object
) -> HeartbeatShortcut | None:
    """The shortcut for heartbeats like ``request``; ``None`` after one that was refused."""
    if not isinstance(response, HeartbeatResponse) or response.error_code != ErrorCode.NONE:
        return None
    return HeartbeatShortcut(frame, request, ctx)
