"""The options by which a test in any language reaches into nodes (``--control``): judged here, served elsewhere.

What serves them is `kbroker.testing.control`, which stands above the command and is imported by its name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from kbroker.config.listeners import is_loopback
from kbroker.errors import FatalError
from kbroker.tools.cli.parser import UsageError
from kbroker.value_types import NamedTuple

DEFAULT_PORT: Final = "9494"


def add_control_arguments(parser: argparse.ArgumentParser, *, of_one_node: bool = False) -> None:
    """The options; ``of_one_node``: of a node whose listeners may be any."""
    parser.add_argument(
        "--control",
        nargs="?",
        const=DEFAULT_PORT,
        metavar="[HOST:]PORT",
        help=f"serve faults, clocks and waits for tests, as JSON: on 127.0.0.1 unless told, port {DEFAULT_PORT}",
    )
    parser.add_argument(
        "--control-token-file",
        type=Path,
        metavar="FILE",
        help="the control is for who shows the token in this file; needed beyond the loopback interface",
    )
    if of_one_node:
        parser.add_argument(
            "--control-config",
            type=Path,
            metavar="FILE",
            help="client properties by which the control comes in, where no listener is PLAINTEXT",
        )
    parser.add_argument(
        "--faults", type=Path, metavar="FILE", help="begin with the faults in this file, lines as of kbroker faults"
    )


def is_controlled(arguments: argparse.Namespace) -> bool:
    """Whether a test is to reach into the node."""
    for name in ("control_token_file", "control_config"):
        if arguments.control is None and getattr(arguments, name, None) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --control")
    return arguments.control is not None or arguments.faults is not None


class ControlOptions(NamedTuple):
    """Where the control is, if anywhere, and the faults to begin with."""

    address: tuple[str, int] | None
    token: str | None
    faults: tuple[str, ...]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ControlOptions:
        """Judge them. ``UsageError`` or ``FatalError`` says what is wrong."""
        is_controlled(arguments)
        address = None if arguments.control is None else address_of("--control", arguments.control, DEFAULT_PORT)
        token = None if arguments.control_token_file is None else token_in(arguments.control_token_file)
        if address is not None and token is None and not is_loopback(address[0]):
            raise UsageError(
                f"--control {arguments.control}: beyond the loopback interface it needs --control-token-file FILE:"
                " whoever reaches it may delete all records"
            )
        lines = () if arguments.faults is None else tuple(_read(arguments.faults).splitlines())
        return cls(address, token, lines)


def address_of(option: str, text: str, default: str) -> tuple[str, int]:
    """The address that an option names, ``[HOST:]PORT``; ``UsageError`` has the ``default`` port as example."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{option} {text}: expected [HOST:]PORT, such as {default}")
    return host, int(port)


def token_in(path: Path) -> str:
    """The token in a file. ``FatalError`` if there is none."""
    token = _read(path).strip()
    if not token or not (token.isascii() and token.isprintable()):
        raise FatalError(f"{path}: expected a token, as one line of ASCII")
    return token


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FatalError(f"{path} is not UTF-8") from None
