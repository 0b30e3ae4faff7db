"""The supervisor of a machine's nodes: it starts them, starts one that dies again, and stops them in order.

It has no event loop but a selector, and imports little: it lives as long as the nodes, and takes memory from them.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from kbroker.base.file_lock import try_lock
from kbroker.tools.cli.child import ended
from kbroker.tools.cli.cluster_plan import READY

STOP_SECONDS: Final = 120.0
"""The time that nodes may take to stop before they are killed. One that gets no further ends by itself, much sooner."""
FIRST_PAUSE: Final = 1.0
"""Seconds between a node's second death and its start, doubled with each one more; after its first there are none."""
TRIES: Final = 5
"""A node that dies so often within `TRIES_SECONDS` is given up."""
TRIES_SECONDS: Final = 60.0

STATE_FILE: Final = "kbroker-cores.json"
"""In the first log directory: the nodes and their processes, for ``kbroker cluster processes`` and ``restart``."""

log = logging.getLogger("kbroker")


class Deaths:
    """The deaths of a process that is started again, at first at once, then after pauses that double."""

    def __init__(self, pause: float = FIRST_PAUSE) -> None:
        self._pause = pause
        self._at: list[float] = []

    def seconds_to_wait(self, now: float) -> float | None:
        """Note one more: the seconds until the next start; None if it has died too often within a minute."""
        self._at = [*(each for each in self._at if each > now - TRIES_SECONDS), now]
        if len(self._at) >= TRIES:
            return None
        return self._pause * 2 ** (len(self._at) - 2) if len(self._at) > 1 else 0.0


class CoreNode:
    """A node and its process, which may be a second or third one."""

    def __init__(self, node_id: int, command: Sequence[str]) -> None:
        self.node_id = node_id
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.serves = False
        self.has_served = False
        """In any of its lives."""
        self.addresses: list[str] = []
        self.deaths = Deaths()
        self.due: float | None = None
        """The time of its next start; None if there is none to come."""
        self.line = b""
        """The part of a line of its output that has come."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, number: int) -> None:
        """Send a signal to its process. `Popen` would reap it, whose end the supervisor has to hear of."""
        if self.process is not None and self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class CoreSupervisor:
    """The nodes of a machine, the first of which has the controller."""

    def __init__(
        self, nodes: Sequence[CoreNode], directory: Path, *, until_eof: bool = False, pause: float = FIRST_PAUSE
    ) -> None:
        """``directory`` gets the state file. ``until_eof``: stop when standard input ends."""
        self.nodes = nodes
        for node in nodes:
            node.deaths = Deaths(pause)
        self._state_file = directory / STATE_FILE
        self._state: TextIO | None = None
        """The state file, once it is written: open, as its lock says that this process lives."""
        self._until_eof = until_eof
        self._code = 0
        self._announced = False
        self._phases: list[list[CoreNode]] | None = None
        """The nodes that are to be stopped after those that are stopping, in order; None while all are to run."""
        self._stopping: list[CoreNode] = []
        self._kill_at = 0.0
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run the nodes until SIGTERM or SIGINT, or until the first cannot be had; the exit code."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._on_signals(reader.recv(64)))
        if self._until_eof:
            with suppress(PermissionError):  # a file, which has no end to wait for
                self._selector.register(0, selectors.EVENT_READ, self._on_input)
        for node in self.nodes:
            node.due = 0.0
        while self._phases is None or any(node.is_running for node in self.nodes):
            self._start_due()
            for key, _ in self._selector.select(self._seconds_to_wait()):
                key.data()
            self._reap()
            self._go_on_stopping()
        if self._state is not None:
            with suppress(OSError):
                self._state_file.unlink()
            self._state.close()
        return self._code

    def _seconds_to_wait(self) -> float | None:
        if self._phases is not None:
            return max(0.0, self._kill_at - time.monotonic())
        due = [node.due for node in self.nodes if node.due is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    # --- Starting and dying -----------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        for node in self.nodes:
            if self._phases is None and node.due is not None and node.due <= time.monotonic():
                self._start(node)

    def _start(self, node: CoreNode) -> None:
        node.due, node.serves, node.line = None, False, b""
        node.starts += 1
        # Its standard input ends with this process, however that ends, and with it the node. A session of its own:
        # Ctrl-C is for this process, which stops the nodes in order.
        try:
            node.process = subprocess.Popen(
                node.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:  # no memory, or too many processes
            self._on_death(node, error.strerror or str(error))
            return
        assert node.process.stdout is not None
        self._selector.register(node.process.stdout, selectors.EVENT_READ, lambda: self._read(node))
        self._write_state()

    def _read(self, node: CoreNode) -> None:
        assert node.process is not None and node.process.stdout is not None
        piece = os.read(node.process.stdout.fileno(), 4096)
        if not piece:
            self._selector.unregister(node.process.stdout)
            return
        *lines, node.line = (node.line + piece).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            if text.startswith(READY):
                node.addresses = text.removeprefix(READY).split()
                self._on_ready(node)
            else:
                print(text, flush=True)

    def _on_ready(self, node: CoreNode) -> None:
        node.serves = node.has_served = True
        self._write_state()
        if self._announced:
            log.info("node %d serves again", node.node_id)
        elif all(each.serves for each in self.nodes):
            self._announced = True
            listeners = zip(*(each.addresses for each in self.nodes), strict=False)
            print(READY, " ".join(",".join(addresses) for addresses in listeners), flush=True)

    def _reap(self) -> None:
        """Take note of ended processes; in a container also of those that a node has left behind."""
        running = {node.process.pid: node for node in self.nodes if node.process is not None and node.is_running}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            node = running.get(pid)
            if node is not None and node.process is not None:
                self._finish(node, node.process, os.waitstatus_to_exitcode(status))

    def _finish(self, node: CoreNode, process: subprocess.Popen[bytes], code: int) -> None:
        process.returncode = code
        assert process.stdin is not None and process.stdout is not None
        if process.stdout in self._selector.get_map():
            self._selector.unregister(process.stdout)
        process.stdin.close()
        process.stdout.close()
        served, node.serves = node.serves, False
        self._write_state()
        if self._phases is not None:
            if code and (served or code != -signal.SIGTERM):  # one that was starting had nothing to save
                log.error("node %d did not stop cleanly: %s", node.node_id, ended(code))
                self._code = self._code or 1
        elif served and code == 0:
            log.info("node %d has stopped, and is started again", node.node_id)
            node.due = time.monotonic()
        elif not node.has_served and code > 0:  # what it has told is to be mended first
            log.error("node %d did not start: %s; the others are stopped", node.node_id, ended(code))
            self._stop(code)
        else:
            self._on_death(node, ended(code))

    def _on_death(self, node: CoreNode, how: str) -> None:
        now = time.monotonic()
        pause = node.deaths.seconds_to_wait(now)
        if pause is not None:
            node.due = now + pause
            log.error("node %d died: %s; it is started again in %g s", node.node_id, how, pause)
            return
        self._code = self._code or 1
        if node is self.nodes[0]:
            log.error("node %d died %d times within a minute: all nodes are stopped", node.node_id, TRIES)
            self._stop(1)
        else:
            log.error("node %d died %d times within a minute and is GIVEN UP: what it has is away", node.node_id, TRIES)

    # --- Stopping ---------------------------------------------------------------------------------------------------

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            if self._phases is None:
                log.info("stopping on %s", signal.Signals(number).name)
                self._stop(0)
            elif number == signal.SIGTERM:  # a service manager may tell all processes of a group, and tell them again
                log.info("SIGTERM again: the nodes are stopping; SIGINT kills them")
            else:
                for node in self.nodes:
                    node.send(signal.SIGKILL)

    def _on_input(self) -> None:
        if not os.read(0, 4096):
            self._selector.unregister(0)
            if self._phases is None:
                self._stop(0)

    def _stop(self, code: int) -> None:
        """Stop all: those that are brokers alone first, so that the controller sees them go."""
        self._code = self._code or code
        self._phases = [list(self.nodes[1:]), list(self.nodes[:1])]

    def _go_on_stopping(self) -> None:
        """Begin with the next nodes once those before them have stopped, and kill those that take too long."""
        while self._phases is not None:
            waiting = [node for node in self._stopping if node.is_running]
            if waiting and time.monotonic() < self._kill_at:
                return
            self._kill_at = time.monotonic() + STOP_SECONDS
            if waiting:
                for node in waiting:
                    log.error("node %d did not stop within %g s and is killed", node.node_id, STOP_SECONDS)
                    node.send(signal.SIGKILL)
                return
            if not self._phases:
                return
            self._stopping = self._phases.pop(0)
            for node in self._stopping:
                node.send(signal.SIGTERM)
                node.send(signal.SIGCONT)

    # --- Telling ----------------------------------------------------------------------------------------------------

    def _write_state(self) -> None:
        """Write what there is, once the first node serves: until then the directory may be another's."""
        if not self.nodes[0].has_served:
            return
        document = {
            "pid": os.getpid(),
            "nodes": [
                {
                    "id": node.node_id,
                    "pid": node.process.pid if node.process is not None and node.is_running else None,
                    "serves": node.serves,
                    "starts": node.starts,
                    "addresses": node.addresses,
                }
                for node in self.nodes
            ],
        }
        new = self._state_file.with_suffix(".tmp")
        try:
            file = new.open("w")
            try_lock(file.fileno())
            file.write(json.dumps(document))
            file.flush()
            new.replace(self._state_file)
            if self._state is not None:
                self._state.close()
            self._state = file
        except OSError as error:
            print(f"kbroker: cannot write {self._state_file}: {error.strerror}", file=sys.stderr, flush=True)
