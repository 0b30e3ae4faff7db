"""Processes of kbroker's own: how a command starts another module of the package."""

from __future__ import annotations

import os
import sys


def module_command(module: str) -> list[str]:
    """The beginning of a command line that runs a module.

    Files of the present directory, such as ``queue.py``, are none of Python's modules then, as they are none for the
    command ``kbroker`` itself; unless the package is there, as in a work tree that is not installed.
    """
    is_here = os.path.realpath(os.path.join(__file__, "../../..")) == os.path.realpath(os.getcwd())
    return [sys.executable, *(() if is_here else ("-P",)), "-m", module]
