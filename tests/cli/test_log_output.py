"""The log of a command."""

from __future__ import annotations

import logging

import pytest

from kbroker.tools.cli.log_output import set_up_logging


def test_a_client_forges_no_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_logging("info")
        forged = "a\n2026-11-30 00:00:00.000 ERROR kbroker: \x1b[2Jit ends"
        logging.getLogger("kbroker.groups").info("group %s is empty", forged)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(
        r" INFO kbroker.groups: group a\n2026-11-30 00:00:00.000 ERROR kbroker: \x1b[2Jit ends is empty"
    )
