"""The options of the control on the command line, judged before anything starts."""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import FatalError
from kbroker.testing.control.server import ControlServer
from kbroker.tools.cli.parser import UsageError

if TYPE_CHECKING:
    from kbroker.testing.script import FaultScript
    from kbroker.testing.verbs import Verbs


class ControlOptions(NamedTuple):
    """Where the control is, if anywhere, and the faults to begin with."""

    address: tuple[str, int] | None
    token: str | None
    faults: tuple[str, ...]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ControlOptions:
        """Judge them. ``UsageError`` or ``FatalError`` says what is wrong."""
        address = None if arguments.control is None else _address(arguments.control)
        token = None if arguments.control_token_file is None else _token(arguments.control_token_file)
        if address is not None and token is None and not _is_loopback(address[0]):
            raise UsageError(
                f"--control {arguments.control}: beyond the loopback interface it needs --control-token-file FILE:"
                " whoever reaches it may delete all records"
            )
        lines = () if arguments.faults is None else _lines(arguments.faults)
        return cls(address, token, lines)

    def server(self, target: Verbs) -> ControlServer | None:
        """The server of a broker or a cluster, not started; None if none is asked for."""
        return None if self.address is None else ControlServer(target, self.address, self.token)

    def begin(self, script: FaultScript) -> None:
        """Have the faults be there; ``UsageError`` names the line that is wrong."""
        for number, line in enumerate(self.faults, 1):
            try:
                script.run(line, only_requests=True)
            except (ValueError, RuntimeError) as error:
                raise UsageError(f"--faults, line {number}: {line.strip()}: {error}") from None


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--control {text}: expected [HOST:]PORT, such as 9494")
    return host, int(port)


def _token(path: Path) -> str:
    token = _read(path).strip()
    if not token or not (token.isascii() and token.isprintable()):
        raise FatalError(f"{path}: expected a token, as one line of ASCII")
    return token


def _lines(path: Path) -> tuple[str, ...]:
    return tuple(_read(path).splitlines())


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FatalError(f"{path} is not UTF-8") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
