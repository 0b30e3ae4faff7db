"""Processes of a node's own, for work that must not take the event loop's interpreter: modules that are run."""

from __future__ import annotations

import os
import subprocess
import sys

import trio


async def open_child(module: str, *, own_session: bool = False) -> trio.Process:
    """Run a module with pipes to its standard input and output. ``OSError`` if it cannot be started.

    It finds the modules that this process finds. In a session of its own, a terminal's Ctrl-C is not for it.
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path))
    return await trio.lowlevel.open_process(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=own_session,
    )


async def end_child(process: trio.Process) -> None:
    """End it now, whatever it is at."""
    process.kill()
    with trio.CancelScope(shield=True):
        await process.wait()
        if process.stdin is not None:
            await process.stdin.aclose()
        if process.stdout is not None:
            await process.stdout.aclose()
