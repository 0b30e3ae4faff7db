"""The log of a command: lines on standard error, and what the authorizer decides in a file of its own."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from kbroker.config import BrokerConfig
from kbroker.errors import FatalError


class _OneLine(logging.Formatter):
    """Keeps each record's text on one line: what a client calls itself begins no line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        if text.isprintable():
            return text
        from kbroker.tools.cli.output import printable  # most nodes never need it

        return printable(text)


def set_up_logging(level: str) -> None:
    """Records to standard error, one line each: time, level, where, text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def set_up_audit_log(path: Path) -> None:
    """The authorizer's records to a file alone, which may be moved away meanwhile: a new one is made then.

    ``FatalError`` if it cannot be written.
    """
    from logging.handlers import WatchedFileHandler

    try:
        handler = WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise FatalError(f"cannot write the audit log {path}: {error.strerror or error}") from error
    handler.setFormatter(_formatter())
    audit = logging.getLogger("kbroker.authorizer")
    audit.handlers[:] = [handler]
    audit.propagate = False


def name_logs(arguments: argparse.Namespace, config: BrokerConfig) -> None:
    """Have each line of the log name the node, where it is one of several."""
    if arguments.core is not None:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_formatter(f"[node {config.node_id}] "))


def _formatter(node: str = "") -> logging.Formatter:
    return _OneLine(f"%(asctime)s.%(msecs)03d %(levelname)s {node}%(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")
