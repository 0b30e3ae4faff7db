"""``kbroker console``: a page about a cluster, for the browser, served by this process."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.client import ClientError
from kbroker.client.cluster import parse_bootstrap
from kbroker.config.listeners import is_loopback
from kbroker.errors import FatalError
from kbroker.tools.cli.common import (
    add_cluster_arguments,
    bootstrap_addresses,
    checked,
    cluster_address,
    complain,
    readable_errors,
    refuse_without_console_packages,
)
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.tools.console.masking import MaskRule, parse_mask

if TYPE_CHECKING:
    import socket

    from kbroker.tools.cli.table_state import FollowedTables
    from kbroker.tools.console.settings import ConsoleSettings

DEFAULT_LISTEN: Final = "127.0.0.1:8080"

DETAILS = """\
The page shows topics, records, groups, transactions and rules; it changes nothing without --writes, and each
change is a line of the audit log (standard error, or --audit-log). A MASK is TOPICS=WHAT[,WHAT...]: TOPICS is
a name, perhaps with * and ?, and WHAT is key, value, headers, or a path into JSON. Examples:

  kbroker console -b localhost:9092
  kbroker console --command-config client.properties --sign-in --writes
  kbroker console --mask 'payments-*=$.card.number,$.name' --mask 'secrets=key,value'"""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``console``."""
    parser.add_argument(
        "--listen",
        type=checked(_listen_address, "an address such as 127.0.0.1:8080"),
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"where the page is served (default {DEFAULT_LISTEN}); port 0 takes a free one",
    )
    parser.add_argument(
        "--profiles",
        metavar="NAME,...",
        help="show these clusters of kbroker profile in the same page, too, or all; protected ones are only shown",
    )
    parser.add_argument("--writes", action="store_true", help="let the page change things, too")
    parser.add_argument(
        "--anybody-may-change-everything",
        action="store_true",
        help="allow --writes beyond the loopback interface although nobody signs in; something else has to",
    )
    parser.add_argument(
        "--sign-in", action="store_true", help="ask for a user of the cluster; needs --command-config with SASL"
    )
    add_repeated(
        parser,
        "--mask",
        metavar="MASK",
        type=checked(parse_mask, "a mask such as 'payments-*=$.card.number,key'"),
        help="hide parts of records",
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="decode records by the schemas of this registry; user, token and TLS are properties of --command-config",
    )
    add_repeated(
        parser,
        "--allow-host",
        metavar="NAME:PORT",
        help="another name under which browsers reach the page, as behind a proxy",
    )
    parser.add_argument(
        "--explorer",
        type=checked(_explorer_addresses, "addresses such as 127.0.0.1:9292"),
        default=(),
        metavar="HOST:PORT,...",
        help="show requests as they happen: where nodes that were started with --explorer are watched",
    )
    add_repeated(
        parser,
        "--data",
        metavar="DIR",
        type=Path,
        help="a log directory of a node on this machine, whose segments may be looked into",
    )
    parser.add_argument(
        "--tables", type=Path, metavar="FILE", help="show the tables of this file, which kbroker table run follows"
    )
    parser.add_argument("--audit-log", type=Path, metavar="FILE", help="append the audit log to a file")
    parser.add_argument(
        "--faults-fd", type=int, metavar="FD", help="a socket to switch faults by, as kbroker faults --console gives it"
    )
    parser.add_argument(
        "--until-eof", action="store_true", help="stop when standard input ends, for a program that it must not outlive"
    )
    add_cluster_arguments(parser, json=False)
    parser.set_defaults(timeout=10.0)


def _listen_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError
    return host, int(port)


def _explorer_addresses(text: str) -> list[tuple[str, int]]:
    return parse_bootstrap(text)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    refuse_without_console_packages()
    import trio

    host, port = arguments.listen
    for directory in arguments.data:
        if not directory.is_dir():
            raise UsageError(f"--data {directory}: there is no such directory")
    masks: tuple[MaskRule, ...] = tuple(arguments.mask)
    if masks and arguments.explorer:
        raise UsageError("--explorer shows records as they are sent, and --mask hides parts of them: give one of them")
    _check(arguments, host)
    with readable_errors():
        addresses, properties = cluster_address(arguments)
        if arguments.sign_in:
            from kbroker.tools.console.api.session import can_sign_in

            problem = "it is not given" if properties is None else can_sign_in(properties)
            if problem:
                raise UsageError(f"--sign-in needs --command-config for users of the cluster: {problem}")
        elif properties is not None:
            from kbroker.client.security import security_of

            security_of(properties)  # what is wrong with it is told now, and not on the page
    _set_up_audit(arguments.audit_log)
    from kbroker.client.schemas.settings import registry_settings
    from kbroker.tools.console.settings import ConsoleSettings

    settings = ConsoleSettings(
        addresses=tuple(addresses),
        hosts=frozenset(name.lower() for name in arguments.allow_host),
        properties=properties,
        timeout=arguments.timeout,
        writes=arguments.writes,
        sign_in=arguments.sign_in,
        masks=masks,
        data=tuple(each.absolute() for each in arguments.data),
        explorers=tuple(arguments.explorer),
        faults_fd=arguments.faults_fd,
        registry=registry_settings(arguments.registry, properties),
        tables=_tables(arguments.tables),
    )
    if arguments.profiles:
        settings = _with_profiles(settings, arguments)
    from kbroker.tools.console.serving import listen

    trio.run(_serve, settings, listen(host, port), host, arguments.until_eof)
    return 0


def _with_profiles(settings: ConsoleSettings, arguments: argparse.Namespace) -> ConsoleSettings:
    """The settings with those of other clusters. What is wrong with one of them is told, and it is left out."""
    from kbroker.client.properties import ClientProperties
    from kbroker.client.schemas.settings import registry_settings
    from kbroker.client.security import security_of
    from kbroker.tools.cli.profiles import chosen_profile, read_profiles
    from kbroker.tools.console.api.session import can_sign_in

    profiles = read_profiles()
    first = chosen_profile(arguments, elsewhere=bool(arguments.bootstrap_server))
    names = list(profiles.known) if arguments.profiles == "all" else arguments.profiles.split(",")
    others = []
    for profile in [profiles.find(name) for name in names if first is None or name != first.name]:
        try:
            path = profile.command_config
            properties = None if path is None else ClientProperties.read(path)
            problem = can_sign_in(properties) if settings.sign_in and properties is not None else ""
            if settings.sign_in and properties is None:
                problem = "it has no command-config"
            if problem:
                raise UsageError(f"nobody can sign in: {problem}")
            if properties is not None and not settings.sign_in:
                security_of(properties)
            place = argparse.Namespace(bootstrap_server=profile.bootstrap)
            others.append(
                replace(
                    settings,
                    cluster=profile.name,
                    addresses=tuple(bootstrap_addresses(place, properties)),
                    properties=properties,
                    writes=settings.writes and not profile.protected,
                    registry=registry_settings(None, properties),
                    explorers=(),
                    data=(),
                    faults_fd=None,
                    tables=None,
                )
            )
        except (FatalError, ClientError) as error:
            complain(f"profile {profile.name} is left out: {error}")
    name = first.name if first is not None else "this cluster"
    return replace(settings, cluster=name, others=tuple(others)) if others else settings


def _tables(file: Path | None) -> FollowedTables | None:
    """The tables of a file. What they need is imported with it, and by no console without one."""
    if file is None:
        return None
    from kbroker.tools.cli.table import followed_tables

    return followed_tables(file)


def _check(arguments: argparse.Namespace, host: str) -> None:
    """Refuse a console that the network could reach, unless that is meant."""
    if is_loopback(host):
        return
    is_open = arguments.writes and not arguments.sign_in
    if is_open and not arguments.anybody_may_change_everything:
        raise UsageError(
            f"--listen {host} with --writes lets everybody change the cluster: give --sign-in, too,"
            " or --anybody-may-change-everything if that is meant"
        )
    if not arguments.allow_host:
        raise UsageError(f"--listen {host} needs --allow-host NAME:PORT, the name that is in the browser's address bar")
    if is_open:
        complain(f"whoever reaches {host} can read, change and delete everything that this console may")
    elif not arguments.sign_in:
        complain(f"whoever reaches {host} sees the records of the cluster: give --sign-in to ask who they are")
    complain("the page is served without TLS: put it behind a proxy that has it, or passwords and records can be read")


def _set_up_audit(path: Path | None) -> None:
    """The audit log goes to standard error or a file, and other warnings to standard error."""
    from kbroker.tools.console.audit import AUDIT

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}") from None
    handler.setFormatter(logging.Formatter("%(message)s" if path is not None else "audit %(message)s"))
    AUDIT.addHandler(handler)
    AUDIT.setLevel(logging.INFO)
    AUDIT.propagate = False


async def _serve(settings: ConsoleSettings, listening: list[socket.socket], host: str, until_eof: bool) -> None:
    import trio

    from kbroker.base import collector
    from kbroker.tools.cli.start import await_end_of_input
    from kbroker.tools.console.serving import serve

    collector.freeze_survivors()  # the topics that are known may be many
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(serve, settings, listening, host)
            how = "changes are allowed" if settings.writes else "read-only"
            print(f"kbroker console: {url} shows the cluster at {settings.bootstrap} ({how})", flush=True)
            if until_eof:
                nursery.start_soon(await_end_of_input, lambda _: nursery.cancel_scope.cancel())
            async for _ in signals:
                nursery.cancel_scope.cancel()
                return
