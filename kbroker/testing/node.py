"""A node of :func:`~kbroker.testing.running_cluster`: ``kbroker start``, and what its test says about faults.

    python -m kbroker.testing.node FD START-OPTION ...

``FD`` is the node's end of a :class:`~kbroker.testing.link.Link`. Without faults, none of this is on a request's path.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import sys
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

import trio

from kbroker.errors import FatalError
from kbroker.testing.clock import MovedClock, MovedEnv, settle
from kbroker.testing.intercepted import Decision, DecisionAction, Question
from kbroker.testing.link import FaultArguments, Value, described, encoded
from kbroker.tools.cli import build_parser
from kbroker.tools.cli.start import run
from kbroker.types import uuid_to_str
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.broker import Broker
    from kbroker.registry.server import RegistryServer
    from kbroker.testing.interception import Interceptor, Named, Rule

_READ_BYTES = 1 << 16


_Call = TypedDict("_Call", {"call": int, "what": str, "with": dict[str, Value]})


class _ActionArguments(TypedDict):
    name: str
    topic: str
    partitions: list[int] | None
    arguments: dict[str, int | str | None]


class Remote:
    """The node's end: does what the test asks for, and asks it about each request that a fault is for."""

    def __init__(self, node: Broker, stream: trio.abc.Stream, clock: MovedClock) -> None:
        self._node = node
        self._clock = clock
        self._stream = stream
        self._numbers = itertools.count()
        self._waiting: dict[int, trio.Event] = {}
        self._replies: dict[int, Value] = {}
        self._writing = trio.Lock()
        self._interceptor: Interceptor | None = None

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Until the test is gone; started with the node's faults, which the test tells of first of all."""
        buffer = b""
        async with trio.open_nursery() as nursery:
            while received := await self._stream.receive_some(_READ_BYTES):
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "reply" in message:
                        self._replies[message["reply"]] = message["value"]
                        self._waiting.pop(message["reply"]).set()
                    elif message["what"] == "begin":
                        task_status.started()
                    elif message["what"] in ("act", "clock"):
                        if message["what"] == "clock":  # in their order, too, if many have come while it was paused
                            ahead, stands_at = cast("tuple[float, float | None]", message["with"]["state"])
                            self._clock.state = ahead, stands_at
                        nursery.start_soon(self._answer, message)
                    else:  # in their order
                        await self._answer(message)
            nursery.cancel_scope.cancel()

    async def _answer(self, call: _Call) -> None:
        try:
            value = await self._do(call)
        except Exception as error:
            await self._write({"reply": call["call"], "error": described(error)})
        else:
            await self._write({"reply": call["call"], "value": value})

    async def _do(self, call: _Call) -> Value:
        match call["what"]:
            case "add":
                self._interception().add(self._rule(cast("FaultArguments", call["with"])))
                return None
            case "remove":
                self._interception().remove(cast("int", call["with"]["number"]))
                return None
            case "decide":
                number, way, body = cast("tuple[int, DecisionAction, str]", call["with"]["decision"])
                return self._interception().decide(number, Decision(way, b64decode(body)))
            case "metadata_offset":
                return self._node.metadata.image.offset
            case "observe":
                self._interception().observe(self._tell if call["with"]["on"] else None)
                return None
            case "clock":
                await settle()
                return None
            case "topic_id":
                topic = self._node.metadata.image.topics.by_name.get(cast("str", call["with"]["topic"]))
                return None if topic is None else uuid_to_str(topic.id)
        from kbroker.testing import broker_actions

        action = cast("_ActionArguments", call["with"])
        function: Callable[..., Awaitable[dict[int, int]]] = getattr(broker_actions, action["name"])
        done = await function(self._node, action["topic"], action["partitions"], **action["arguments"])
        return list(done.items())

    def _interception(self) -> Interceptor:
        if self._interceptor is None:
            from kbroker.testing.interception import Interceptor

            self._interceptor = Interceptor(self._node)
        return self._interceptor

    def _rule(self, fault: FaultArguments) -> Rule:
        from kbroker.testing.faults import Match
        from kbroker.testing.interception import Rule

        number, wanted = fault["number"], fault["match"]

        async def fires() -> bool:
            return bool(await self._ask("fires", number=number))

        async def note(
            api: str, api_version: int, client_id: str | None, correlation_id: int, partitions: Named, detail: str
        ) -> None:
            await self._ask(
                "note",
                number=number,
                api=api,
                api_version=api_version,
                client_id=client_id,
                correlation_id=correlation_id,
                partitions=partitions,
                detail=detail,
            )

        async def ask(asked: Question) -> None:
            question = asked._replace(body=b64encode(asked.body).decode())  # type: ignore[arg-type]
            await self._write({"what": "intercepted", "with": {"question": question}})

        client_id = wanted["client_id"]
        match = Match(
            None if wanted["api"] is None else API_KEYS[wanted["api"]],
            wanted["topic"],
            wanted["partition"],
            None if client_id is None else re.compile(client_id),
            followers=wanted["followers"],
            timestamp=wanted["timestamp"],
        )
        return Rule(number, match, fault["action"], fault["parameters"], fires, note, ask)

    async def _ask(self, what: str, **arguments: object) -> Value:
        number = next(self._numbers)
        self._waiting[number] = event = trio.Event()
        await self._write({"call": number, "what": what, "with": arguments})
        await event.wait()
        return self._replies.pop(number)

    async def _tell(self, request: Mapping[str, object]) -> None:
        await self._write({"what": "request", "with": request})

    async def _write(self, message: Mapping[str, object]) -> None:
        async with self._writing:
            await self._stream.send_all(encoded(message))


class Beside:
    """The node's end of a link, and the clock that the test moves."""

    registry: RegistryServer | None = None
    """None: the registry of a cluster is beside all of its nodes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.trio_clock = MovedClock()

    def check(self, config: BrokerConfig) -> None:
        """The node is one that its cluster has planned."""

    def env(self) -> MovedEnv:
        """This machine, by that clock."""
        return self.trio_clock.env()

    async def run(self, node: Broker, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do what the test asks for, until it is gone."""
        connection = trio.socket.from_stdlib_socket(socket.socket(fileno=self._descriptor))
        async with trio.SocketStream(connection) as stream:
            try:
                await Remote(node, stream, self.trio_clock).serve(task_status)
            except* (trio.BrokenResourceError, OSError):
                pass  # the test is gone; that the node is to end is told by its standard input


def main(argv: Sequence[str]) -> int:
    """Serve until told to stop, as ``kbroker start`` does; the exit code."""
    descriptor, *options = argv
    os.set_inheritable(int(descriptor), False)  # what the node starts is not to hold it open

    parser, words = build_parser(["start", *options])
    try:
        return run(parser.parse_args(words), beside=Beside(int(descriptor)))
    except FatalError as error:
        print(f"kbroker: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
