"""Processes that compact logs, so that a round takes nothing of the event loop's interpreter."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import trio

from kbroker.log.compaction.job import CompactionFailed, CompactionJob, CompactionResult, NoWorker


class _Worker:
    """A process of the pool, which does one job at a time."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> _Worker:
        """The process needs a tenth of a second to be there; its job waits in the pipe for that. :class:`NoWorker`."""
        try:
            # With the first job: most nodes have none. A failure here is of the installation, or of open files.
            importlib.import_module("kbroker.node.logs.compaction_worker")
            process = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", "kbroker.node.logs.compaction_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # It finds the modules that this process finds.
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path)),
            )
        except (OSError, ImportError) as error:
            raise NoWorker(f"no process to compact logs in can be started: {error}") from error
        return cls(process)

    async def call(self, job: CompactionJob, bytes_per_second: float) -> CompactionResult:
        """Have a job done."""
        from kbroker.node.logs.compaction_worker import decode_answer, encode_job  # `start` has imported it

        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        answer = bytearray()
        try:
            await stdin.send_all(encode_job(job, bytes_per_second))
            while not answer.endswith(b"\n"):
                data = await stdout.receive_some()
                if not data:
                    raise CompactionFailed("the process that compacts logs has ended")
                answer += data
        except trio.BrokenResourceError as error:
            raise CompactionFailed("the process that compacts logs has ended") from error
        return decode_answer(bytes(answer))

    async def end(self) -> None:
        """End the process now; a round that it is at can be given up at any point."""
        self._process.kill()
        with trio.CancelScope(shield=True):
            await self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    await stream.aclose()


class CompactionPool:
    """The processes that compact logs: as many as there are jobs at once, none while there is nothing to do."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    async def compact(self, job: CompactionJob, bytes_per_second: float) -> CompactionResult:
        """:func:`kbroker.log.compaction.compactor.compact` in another process; raises what it raises there, or
        :class:`NoWorker`."""
        worker = self._idle.pop() if self._idle else await _Worker.start()
        usable = False
        try:
            result = await worker.call(job, bytes_per_second)
            usable = True
            return result
        finally:
            if usable:
                self._idle.append(worker)
            else:
                await worker.end()

    async def close_idle(self) -> None:
        """End the processes that have nothing to do."""
        idle, self._idle = self._idle, []
        for worker in idle:
            await worker.end()
