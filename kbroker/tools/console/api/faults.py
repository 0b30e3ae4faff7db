"""Faults of the nodes, where ``kbroker faults`` has started this console: which are on, switched with ``--writes``."""

from __future__ import annotations

from kbroker.client import Client
from kbroker.client.records_io.json_types import Json
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.fault_channel import FaultChannel


def _channel(call: Call) -> FaultChannel:
    if call.session.view is None:
        raise RequestRefused(401, "sign in first")
    channel = call.console.faults
    if channel is None:
        raise RequestRefused(404, "this console can switch no faults: kbroker faults --console starts one that can")
    return channel


async def describe_faults(call: Call) -> Json:
    """The faults that are on, what they have done, and the words by which others are switched on."""
    channel = _channel(call)
    return await call.compute(lambda: channel.ask({"state": True}))


async def run_fault_line(call: Call) -> Json:
    """Do a line of ``kbroker faults``: switch a fault on, undo one, kill a node."""
    channel, line = _channel(call), call.text("line")
    if "\n" in line or len(line) > 1000:
        raise RequestRefused(400, "one line is done at a time")

    def run(_: Client) -> str:
        answer = channel.ask({"run": line})
        if "error" in answer:
            raise RequestRefused(400, str(answer["error"]))
        return str(answer.get("told", ""))

    return {"done": await call.write("fault", line, None, run)}
