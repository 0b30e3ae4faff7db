"""Common parts of the commands that talk to a cluster: options, the client, errors as one line, questions."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, FatalError
from kbroker.tools.cli.parser import UsageError, did_you_mean

if TYPE_CHECKING:
    from kbroker.client import Client, ClientError, ResponseError
    from kbroker.client.properties import ClientProperties

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "KBROKER_BOOTSTRAP"


def add_cluster_arguments(parser: argparse.ArgumentParser, *, json: bool = True) -> None:
    """``--bootstrap-server``, ``--command-config``, ``--timeout``, and ``--json`` unless the command has its own."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"brokers to ask first, separated by commas (default: ${BOOTSTRAP_VARIABLE}, or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument("--profile", metavar="NAME", help="a cluster by its name: see kbroker profile")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="Kafka's client properties: security.protocol, ssl.*, sasl.*, bootstrap.servers",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=30.0, metavar="SECONDS", help="give up after so long (default 30)"
    )
    if json:
        parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


@contextmanager
def cluster(arguments: argparse.Namespace, *, task: str = "", client_id: str = "kbroker-cli") -> Iterator[Client]:
    """A client for the cluster that the options name; its errors come out as :class:`FatalError`.

    ``task``: what the block does, told with its time if it takes long; then the block must print and ask nothing.
    """
    from kbroker.client import Client, ConnectionFailed, ResponseError
    from kbroker.tools.cli.progress import progress

    with readable_errors():
        addresses, properties = cluster_address(arguments)
        security = None
        if properties is not None:
            from kbroker.client.security import security_of

            security = security_of(properties)
        client_id = (properties and properties["client.id"]) or client_id
        try:
            with (
                Client(addresses, client_id=client_id, timeout=arguments.timeout, security=security) as client,
                progress(task) if task else nullcontext(),
            ):
                yield client
        except ConnectionFailed as error:
            if properties is None and error.perhaps_secured:
                raise FatalError(f"{error}; for a listener with TLS or SASL give --command-config FILE") from None
            if error.is_refused:
                raise FatalError(
                    f"{error}: nothing listens there; kbroker start starts a node, -b names another place"
                ) from None
            raise
        except ResponseError as error:
            raise FatalError(f"{error}{nearest_topic(client, error)}{nearest_config(error)}") from error


def cluster_address(arguments: argparse.Namespace) -> tuple[list[tuple[str, int]], ClientProperties | None]:
    """Where the cluster is, and the client's properties, by the options, a profile or the environment.

    A protected cluster is asked about first. ``UsageError``, ``FatalError``, ``ClientError``.
    """
    apply_profile(arguments)
    properties = _client_properties(arguments.command_config)
    return bootstrap_addresses(arguments, properties), properties


def apply_profile(arguments: argparse.Namespace) -> None:
    """Put the profile that is chosen, if any, in the place of ``-b`` and ``--command-config`` where they are not given.

    A protected cluster is asked about first. ``UsageError``, ``FatalError``.
    """
    from kbroker.client.cluster import parse_bootstrap
    from kbroker.tools.cli.profiles import chosen_profile

    profile = chosen_profile(arguments, elsewhere=bool(os.environ.get(BOOTSTRAP_VARIABLE)))
    if profile is None:
        return
    if profile.protected:
        _ask_about_protected(profile.name, arguments)
    if not arguments.bootstrap_server and profile.bootstrap:
        try:
            parse_bootstrap(profile.bootstrap)
        except ValueError as error:
            raise UsageError(f"profile {profile.name}: {error}") from None
        arguments.bootstrap_server = profile.bootstrap
    if arguments.command_config is None:
        arguments.command_config = profile.command_config


def bootstrap_addresses(arguments: argparse.Namespace, properties: ClientProperties | None) -> list[tuple[str, int]]:
    """The addresses that the options name, or the properties, the environment, the default; ``UsageError``."""
    from kbroker.client.cluster import parse_bootstrap

    told, text = "--bootstrap-server", arguments.bootstrap_server
    if properties is not None and not text and properties["bootstrap.servers"]:
        told, text = f"{properties.source}: bootstrap.servers", properties["bootstrap.servers"]
    try:
        return parse_bootstrap(text or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP)
    except ValueError as error:
        raise UsageError(f"{told}: {error}") from None


def _ask_about_protected(profile: str, arguments: argparse.Namespace) -> None:
    """Ask before a command may change a protected cluster; ``FatalError`` without agreement."""
    from kbroker.tools.cli.protection import changes_something, name_of

    if not changes_something(arguments):
        return
    arguments.protected = profile
    agreed = (
        getattr(arguments, "yes", False) or getattr(arguments, "execute", False) or getattr(arguments, "asks", False)
    )
    if not confirm(f"The cluster of profile {profile} is protected: kbroker {name_of(arguments)}?", agreed):
        raise FatalError(f"nothing is changed: the cluster of profile {profile} is protected")


def _client_properties(path: Path | None) -> ClientProperties | None:
    """The client properties of ``--command-config``. A line tells the names in it that mean nothing here."""
    if path is None:
        return None
    from kbroker.client.properties import ClientProperties

    properties = ClientProperties.read(path)
    if properties.without_effect:
        complain(f"{path}: without effect here: {', '.join(properties.without_effect)}")
    return properties


def nearest_topic(client: Client, error: ResponseError) -> str:
    """Returns a question that names the topic most like one that is not there; "" for any other error."""
    from kbroker.client import ClientError
    from kbroker.client.topics import list_topics

    kind, _, name = error.what.partition(" ")
    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or kind != "topic":
        return ""
    try:
        return did_you_mean([name], [topic.name for topic in list_topics(client)])
    except ClientError:
        return ""


def nearest_config(error: ClientError) -> str:
    """Returns a question that names the property most like one that topics do not have; "" for any other error."""
    unknown = re.search(r"Unknown topic config name: ([\w.-]+)", str(error))
    if unknown is None:
        return ""
    from kbroker.config.topic import TOPIC_CONFIGS

    return did_you_mean([unknown[1]], TOPIC_CONFIGS)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn the client's errors, whose text is one line, into those that ``main`` prints."""
    from kbroker.client import ClientError
    from kbroker.wire.errors import EncodeError, WireError

    try:
        yield
    except ClientError as error:
        raise FatalError(str(error)) from error
    except WireError as error:
        raise FatalError(f"a broker sent bytes that cannot be right: {error}") from error
    except EncodeError as error:
        raise FatalError(f"this cannot be put into a request: {error}") from error


def complain(text: str) -> None:
    """A line on standard error. Control characters, which a file or a broker may have sent, do nothing there."""
    if not text.isprintable():  # a node that starts need not import what most complaints do without
        from kbroker.tools.cli.output import printable_lines

        text = printable_lines(text)
    print(f"kbroker: {text}", file=sys.stderr)


def confirm(question: str, agreed: bool) -> bool:
    """Ask a person, unless ``--yes`` was given; ``FatalError`` where there is nobody to ask."""
    if agreed:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise FatalError(f"{question} Give --yes to do it without being asked.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm_change(question: str, client: Client, arguments: argparse.Namespace) -> bool:
    """Ask a person before something in a cluster changes for good, and name the cluster; ``FatalError`` as `confirm`.

    A command that asks so has `add_yes`, and is not asked about a protected cluster besides.
    """
    protected = getattr(arguments, "protected", "")
    where = (
        f"the protected cluster of profile {protected}"
        if protected
        else "the cluster at {}:{}".format(*client.bootstrap[0])
    )
    return confirm(f"{question} This is {where}.", arguments.yes)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """``--yes``, of a command that always asks by itself (`confirm_change`)."""
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")
    parser.set_defaults(asks=True)


def assignment(text: str) -> list[list[int]]:
    """``1:2,2:3``: the brokers of each partition, as kafka-topics has it."""
    try:
        found = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 1:2,2:3") from None
    return found


def name_value(text: str) -> tuple[str, str]:
    """``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def config_value(text: str) -> tuple[str, str]:
    """``name=value`` of a config, whose value may have a unit: ``retention.ms=7d``, ``segment.bytes=64MiB``."""
    from kbroker.client.config_units import in_kafkas_units

    name, value = name_value(text)
    return name, in_kafkas_units(name, value)


def positive(text: str) -> int:
    """A number of at least 1."""
    return _whole(text, 1)


def not_negative(text: str) -> int:
    """A number of at least 0."""
    return _whole(text, 0)


def _whole(text: str, lowest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < lowest or value >= 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not a number from {lowest} on")
    return value


def checked(kind: Callable[[str], object], expected: str) -> Callable[[str], object]:
    """An argparse type out of a function that raises ``ValueError``."""

    def convert(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}") from None

    return convert


def refuse_without_console_packages() -> None:
    """``FatalError`` with the command that installs what the console needs, if something of it is missing."""
    import importlib.util

    missing = [name for name in ("starlette", "hypercorn", "h11") if importlib.util.find_spec(name) is None]
    if missing:
        raise FatalError(f"the console needs {missing[0]}: pip install 'kbroker[console]'")


def report_failures(problems: Sequence[object]) -> int:
    """A line for each problem; the exit code."""
    for problem in problems:
        complain(str(problem))
    return 1 if problems else 0


@contextmanager
def told_to_stop() -> Iterator[None]:
    """SIGTERM as Ctrl-C."""
    import signal

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
