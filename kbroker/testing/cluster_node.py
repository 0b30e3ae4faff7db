"""A node of a cluster inside a test: a process that can be killed, paused, stopped and started again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from kbroker.errors import FatalError
from kbroker.testing.intercepted import Decision, Question
from kbroker.testing.link import Link, LinkClosed, NoteArguments, Value, fault_arguments
from kbroker.testing.seen import CannotNow, NodeAction, NodeSeen
from kbroker.tools.cli.cluster_plan import READY, NodePlan

if TYPE_CHECKING:
    from kbroker.testing.faults import Fault, Faults

logger = logging.getLogger(__name__)

START_SECONDS = 180.0
_STOP_SECONDS = 180.0
_POLL_SECONDS = 0.02
_OFFSET_SECONDS = 10.0

_QuestionFields: TypeAlias = tuple[int, int, int, int, int, "str | None", int, str]
"""A ``Question``, its body in base64."""


class ClusterNode:
    """A node of a cluster and its process. Every call is bounded in time; ``TimeoutError`` says what did not come."""

    def __init__(self, plan: NodePlan, faults_of: Callable[[ClusterNode], Faults]) -> None:
        """``faults_of`` makes the faults of this node, which are those of its cluster, too."""
        self._plan = plan
        self._faults_of = faults_of
        self._link: Link | None = None
        self._serves = False
        self._faults: Faults | None = None
        self._faults_here: dict[int, Fault] = {}
        self._clock: tuple[float, float | None] | None = None
        """The state of its clock (:class:`~kbroker.testing.clock.MovedClock`), once a test has moved it."""
        self._tell: Callable[[Mapping[str, Value]], object] | None = None
        """Called with each request of a client, on the link's thread, once a test wants them."""
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = self._is_told_to_end = False

    @property
    def id(self) -> int:
        """``node.id``; from 1 on."""
        return self._plan.node_id

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of this node alone."""
        return self._plan.address

    @property
    def data_dir(self) -> Path:
        """Where the node's files are."""
        return self._plan.directory

    @property
    def log(self) -> str:
        """The node's log so far, over all its restarts."""
        with contextlib.suppress(FileNotFoundError):
            return self._plan.log_file.read_text("utf-8", "replace")
        return ""

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        process = self._process  # another thread may end the node meanwhile
        return process.pid if process is not None and process.poll() is None else None

    @property
    def is_running(self) -> bool:
        """Whether there is a process, perhaps a paused one."""
        return self.pid is not None

    @property
    def _is_up(self) -> bool:
        return self.is_running and not self._paused

    def start(self, *, wait: bool = True) -> None:
        """Start the node on its data, on the same port; returns once it serves, or at once.

        A node of three serves only when another one runs too: start two with ``wait=False`` and then wait for both.
        :class:`FatalError` if it ends instead of serving. Does nothing while it runs.
        """
        if self.is_running:
            return
        self._tell_of_its_end()
        self._clean_up()
        self._is_told_to_end = False
        with self._plan.log_file.open("ab") as log:
            ours, theirs = socket.socketpair()
            self._link = Link(ours, self._answer)
            with theirs:
                # Standard input is held open by this process alone: when it ends, however it ends, so do the nodes.
                self._process = subprocess.Popen(
                    self._plan.command_of("kbroker.testing.node", str(theirs.fileno())),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._output = b""
        with contextlib.suppress(LinkClosed):  # it has ended already: who awaits it is told why
            for fault in list(self._faults_here.values()):
                self._link.post("add", **fault_arguments(fault))
            if self._clock is not None:
                self._link.post("clock", state=self._clock)
            if self._tell is not None:
                self._link.post("observe", on=True)
            self._link.begin()
        if wait:
            self.await_ready()

    def await_ready(self, timeout: float = START_SECONDS) -> None:
        """Return once the node serves; :class:`FatalError` if it ends instead."""
        what = f"node {self.id} does not serve"
        until(self._is_ready, what, timeout, lambda: f"; its log ends:\n{self.log[-2000:]}")
        self._serves = True

    def _is_ready(self) -> bool:
        if READY.encode() in self._output:
            return True
        process = self._process
        if process is None or process.stdout is None:
            raise FatalError(f"node {self.id} is not started")
        code = process.poll()  # before reading: what it printed last is then there
        self._output += process.stdout.read() or b""
        if READY.encode() in self._output:
            return True
        if code is not None:
            raise FatalError(f"node {self.id} ended with exit code {code} instead of serving:\n{self.log[-2000:]}")
        return False

    def stop(self) -> int:
        """Stop cleanly, as on SIGTERM; the exit code, 0 if all went well. A paused node is resumed for it."""
        if self._process is None:
            return 0
        self._tell_of_its_end()
        self._signal(signal.SIGTERM)
        self.resume()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"node {self.id} did not stop within {_STOP_SECONDS:.0f} s") from None
        self._clean_up()
        return code

    def kill(self) -> None:
        """End the process at once, as by ``kill -9``: it has no chance to say or to save anything."""
        self._tell_of_its_end()
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._clean_up()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let a paused process go on."""
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    # --- Faults

    @property
    def faults(self) -> Faults:
        """The faults of this node alone; those of its cluster act at all nodes."""
        if self._faults is None:
            self._faults = self._faults_of(self)
        return self._faults

    @property
    def _link_is_up(self) -> bool:
        return self._serves and self._is_up

    def _metadata_offset(self, seconds: float = _OFFSET_SECONDS) -> int:
        """The offset of the metadata that the node goes by, -1 while it does not tell."""
        link = self._link
        if link is not None and self._link_is_up:
            with contextlib.suppress(LinkClosed, TimeoutError):
                return cast("int", link.call("metadata_offset", seconds))
        return -1

    @property
    def seen(self) -> NodeSeen:
        """Its state and its address."""
        state = "down" if not self.is_running else "paused" if self._paused else "running"
        return NodeSeen(self.id, state, self.bootstrap_servers)

    def change(self, action: NodeAction) -> None:
        """Do what ``action`` says. ``CannotNow``: a node that is down cannot be paused, nor a paused one started."""
        if action == "pause" and not self.is_running:
            raise CannotNow(f"node {self.id} does not run")
        if action == "start" and self._paused:
            raise CannotNow(f"node {self.id} is paused: resume it")
        getattr(self, action)()

    def _set_clock(self, state: tuple[float, float | None]) -> Callable[[], object]:
        """Move its clock, of a paused node once it goes on; call what is returned to wait until it is done."""
        self._clock = state
        link = self._link
        if link is None:
            return lambda: None
        try:
            number = link.post("clock", state=state)
        except LinkClosed:
            return lambda: None

        def wait() -> None:
            with contextlib.suppress(LinkClosed):
                link.reply_to(number, "clock")

        return wait if self._link_is_up else lambda: None

    def _observe(self, tell: Callable[[Mapping[str, Value]], object] | None) -> None:
        """Have each request of a client be told; None: no more."""
        self._tell = tell
        self._command("observe", on=tell is not None)

    def _add_fault(self, fault: Fault) -> None:
        self._faults_here[fault.number] = fault
        self._command("add", **fault_arguments(fault))

    def _remove_fault(self, fault: Fault) -> None:
        if self._faults_here.pop(fault.number, None) is not None:
            self._command("remove", number=fault.number)

    def _command(self, what: str, **arguments: object) -> Value:
        """Send a command about faults or requests; a node that is down gets it at its start, a paused one later.

        Returns its answer, None of a paused one, False of one that is down.
        """
        link = self._link  # another thread may end the node meanwhile
        if link is None:
            return False
        with contextlib.suppress(LinkClosed):
            if not self._paused:
                return link.call(what, **arguments)
            link.post(what, **arguments)
            return None
        return False

    def _answer(self, what: str, arguments: Mapping[str, Value]) -> Value:
        """Answer the node's question about a request, or take what it tells of one; on the link's thread."""
        if what == "request":
            if self._tell is not None:
                self._tell(arguments)
            return None
        if what == "intercepted":
            self._take_question(cast("_QuestionFields", arguments["question"]))
            return None
        fault = self._faults_here.get(cast("int", arguments["number"]))
        if what == "fires":
            return fault is not None and fault.fires()
        if fault is not None:
            noted = cast("NoteArguments", arguments)
            fault.note(
                noted["api"],
                noted["api_version"],
                noted["client_id"],
                noted["correlation_id"],
                tuple((topic, index) for topic, index in noted["partitions"]),
                noted["detail"],
                self.id,
            )
        return None

    def _take_question(self, fields: _QuestionFields) -> None:
        asked = Question(*fields[:-1], b64decode(fields[-1]))
        fault = self._faults_here.get(asked.fault)
        if fault is not None:  # which frees what waits, otherwise

            def decide(decision: Decision) -> bool:
                body = b64encode(decision.body).decode()
                return self._command("decide", decision=(asked.number, decision.action, body)) is not False

            fault.intercepted.put(asked, decide)

    def _tell_of_its_end(self) -> None:
        """Log that it has ended by itself, if it has: who uses the other nodes may not notice."""
        code = None if self._process is None else self._process.poll()
        if code is not None and self._serves and not self._is_told_to_end:
            logger.error(
                "node %d ended by itself, with exit code %d; its log ends:\n%s", self.id, code, self.log[-2000:]
            )

    def _signal(self, number: int) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            self._is_told_to_end |= number in (signal.SIGTERM, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _clean_up(self) -> None:
        process, self._process, self._paused, self._serves = self._process, None, False, False
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __repr__(self) -> str:
        state = "paused" if self._paused else f"pid {self.pid}" if self.is_running else "not running"
        return f"<node {self.id} at {self.bootstrap_servers}, {state}>"


def until(condition: Callable[[], bool], what: str, timeout: float, more: Callable[[], str] = str) -> None:
    """Return once the condition holds. ``TimeoutError`` after ``timeout`` seconds, with ``what`` and ``more``."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} after {timeout:.0f} s{more()}")
        time.sleep(_POLL_SECONDS)
