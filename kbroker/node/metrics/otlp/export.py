"""The node's side of an export by OTLP: a process beside the node asks for figures, and gets them, again and again.

The event loop does as much for it as for a scrape of the page, in the same pieces. It waits for the process without an
end, and holds one piece meanwhile: whatever a receiver does, it is done to that process.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from typing import TYPE_CHECKING, Final

import trio

from kbroker.errors import FatalError
from kbroker.node.metrics.node_figures import NodeFigures
from kbroker.node.metrics.otlp import feed
from kbroker.node.peers.child_process import end_child, open_child
from kbroker.observe.metrics.dialect import Dialect
from kbroker.version import __version__

if TYPE_CHECKING:
    from kbroker.config.otlp import OtlpSettings
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.node.metrics.node_metrics import NodeMetrics

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 30.0
"""After its process has ended, for whatever reason."""
PIECE: Final = 16 << 10
"""Bytes that are written at once."""
LINES: Final = 4
"""Lines that are made without a turn for others."""
LONGEST_ANSWER: Final = 4 << 10
"""Bytes of what the process says of an export."""

_PACKAGE: Final = "opentelemetry.exporter.otlp.proto.http"


def check_packages() -> None:
    """``FatalError`` if OpenTelemetry's packages are not installed. They are not imported."""
    try:
        found = importlib.util.find_spec(_PACKAGE)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise FatalError("metrics by OTLP need OpenTelemetry's packages: pip install 'kbroker[otlp]'")


class OtlpExport:
    """Exports the metrics of one node until it is cancelled."""

    def __init__(self, settings: OtlpSettings, node: MeasuredNode, metrics: NodeMetrics) -> None:
        self._settings = settings
        self._node = node
        self._metrics = metrics
        self._figures = NodeFigures(node, metrics)
        self._works: bool | None = None
        """Whether the last export has reached its receiver; None before the first."""

    async def run(self) -> None:
        """Export, through one process after the other if need be."""
        while True:
            reason = await self._run_process()
            logger.error(
                "the process that exports metrics has ended (%s); the next one starts in %d s", reason, RESTART_SECONDS
            )
            await trio.sleep(RESTART_SECONDS)

    async def _run_process(self) -> str:
        """Feed a process until it ends; the reason."""
        try:
            process = await open_child("kbroker.node.metrics.otlp.process", own_session=True)
        except OSError as error:
            return str(error)
        try:
            await self._feed(process)
            return f"exit code {await process.wait()}"
        except trio.BrokenResourceError:
            return f"exit code {await process.wait()}"
        except Exception:
            logger.exception("metrics cannot be read for their export")
            return "it was ended"
        finally:
            await end_child(process)

    async def _feed(self, process: trio.Process) -> None:
        """Answer each question of the process; return when there are no more."""
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        await stdin.send_all(self._greeting())
        asked = bytearray()
        async for data in stdout:
            asked += data
            while b"\n" in asked:
                line, _, rest = bytes(asked).partition(b"\n")
                asked = bytearray(rest)
                self._note(line)
                await self._send(stdin)
            if len(asked) > LONGEST_ANSWER:
                process.kill()

    def _greeting(self) -> bytes:
        """The line that says whereto, how often, and for whom the process exports."""
        endpoint, interval_ms = self._settings
        resource = {
            "service.name": "kbroker",
            "service.version": __version__,
            "service.instance.id": str(self._node.config.node_id),
            "kafka.cluster.id": self._node.metadata.cluster_id,
        }
        greeting = {
            "endpoint": endpoint,
            "interval_ms": interval_ms,
            "resource": resource,
            "started_ns": self._metrics.started_ms * 1_000_000,
        }
        return json.dumps(greeting).encode() + b"\n"

    def _note(self, line: bytes) -> None:
        """Log what has become of the last export, if that is news."""
        outcome = json.loads(line)
        if outcome is None:  # the first question
            return
        failure, endpoint = str(outcome["failure"]), self._settings.endpoint
        if failure and self._works is not False:
            logger.warning("metrics cannot be exported to %s, which goes on being tried: %s", endpoint, failure)
        elif not failure and not self._works:
            logger.info("metrics are exported to %s", endpoint)
        self._works = not failure

    async def _send(self, stdin: trio.abc.SendStream) -> None:
        """All figures, and an empty line after the last."""
        env = self._metrics.env
        figures = await self._figures.look(Dialect.STRIMZI)
        lines = feed.lines(figures, self._metrics.clients, env.now(), lambda: env.wall_clock_ms() * 1_000_000)
        piece = bytearray()
        for number, line in enumerate(lines, 1):
            piece += line
            if len(piece) >= PIECE:
                await stdin.send_all(piece)
                piece = bytearray()
            elif not line or not number % LINES:
                await trio.lowlevel.checkpoint()
        await stdin.send_all(piece + b"\n")
