"""The command, run in this process against a broker."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbroker.tools.cli import main


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


def command_for(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``kb("topic", "list")`` runs the command; it must succeed unless another ``code`` is given (None: any).

    Nothing is ever a traceback.
    """
    monkeypatch.setenv("KBROKER_BOOTSTRAP", bootstrap)
    capsys.readouterr()

    def run(*words: str, code: int | None = 0) -> Result:
        try:
            ended = main(list(words))
        except SystemExit as error:
            ended = int(error.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert code is None or ended == code, captured
        return Result(ended, captured.out, captured.err)

    return run


@contextlib.contextmanager
def process_put_back() -> Iterator[None]:
    """A block in which a command may set up logging and the collector of garbage for its process, as ``start`` does."""
    root, was_enabled = logging.getLogger(), gc.isenabled()
    handlers, level, threshold = root.handlers[:], root.level, gc.get_threshold()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        gc.set_threshold(*threshold)
        if was_enabled:
            gc.enable()


def kbroker(*words: str, cwd: str | Path = ".") -> subprocess.CompletedProcess[str]:
    """Runs the command in this process, with streams of its own, as `subprocess.run` does in another."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors)
    with process_put_back(), contextlib.chdir(cwd), streams[0], streams[1]:
        try:
            code = main(list(words))
        except SystemExit as error:
            code = int(error.code or 0)
    told = [stream.buffer.getvalue().decode() for stream in (out, errors)]
    return subprocess.CompletedProcess(words, code, *told)
