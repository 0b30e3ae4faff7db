"""``kbroker user``: users who log in with a password (SCRAM), kept by the cluster itself."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, add_yes, cluster, confirm_change, positive
from kbroker.tools.cli.output import print_json, print_table
from kbroker.tools.cli.parser import Action, UsageError, add_repeated

if TYPE_CHECKING:
    from kbroker.security.sasl.scram import ScramMechanism

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_MECHANISM = "SCRAM-SHA-512"

_PASSWORD_DETAILS = """\
The password is asked for at a terminal; elsewhere it is the first line of standard input, or of
--password-file. It never stands in the command line, where everybody on the machine could read it, and
only its salted hash is sent. A user who is there already gets the new password."""


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("users", nargs="*", metavar="NAME", help="only these users")
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.client.users import describe_users

    with cluster(arguments) as client:
        found = describe_users(client, arguments.users or None)
    if arguments.json:
        print_json(
            [
                {"user": each.user, "mechanism": each.mechanism.mechanism_name, "iterations": each.iterations}
                for each in found
            ]
        )
    else:
        print_table(
            ["user", "mechanism", "iterations"],
            [[each.user, each.mechanism.mechanism_name, each.iterations] for each in found],
            numbers=("iterations",),
        )
    return 0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="NAME", help="the user's name")
    _add_mechanism(parser, f"mechanism that the password is for (default {_DEFAULT_MECHANISM})")
    parser.add_argument(
        "--iterations", type=positive, metavar="COUNT", help="rounds of hashing, 4096 to 16384 (default 8192)"
    )
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file whose first line is the password")
    add_cluster_arguments(parser)


def _add(arguments: argparse.Namespace) -> int:
    from kbroker.client.users import DEFAULT_ITERATIONS, set_password

    mechanisms = _mechanisms(arguments.mechanism or [_DEFAULT_MECHANISM])
    password = read_password(arguments.password_file, f"Password of {arguments.user}: ")
    with cluster(arguments) as client:
        set_password(client, arguments.user, password, mechanisms, arguments.iterations or DEFAULT_ITERATIONS)
    if arguments.json:
        _print_json(arguments.user, mechanisms)
    else:
        print(f"user {arguments.user} can log in with {_told(mechanisms)}")
    return 0


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="NAME", help="the user's name")
    _add_mechanism(parser, "only this mechanism")
    add_yes(parser)
    add_cluster_arguments(parser)


def _delete(arguments: argparse.Namespace) -> int:
    from kbroker.client.users import describe_users, remove_credentials

    with cluster(arguments) as client:
        wanted = _mechanisms(arguments.mechanism or _MECHANISMS)
        passwords = describe_users(client, [arguments.user])
        found = [each for each in passwords if each.mechanism in wanted]
        if not found:
            raise FatalError(f"user {arguments.user} has no password for {_told(wanted)}")
        told = _told([each.mechanism for each in found])
        if not confirm_change(f"Take {told} from user {arguments.user}?", client, arguments):
            return 1
        remove_credentials(client, found)
    if arguments.json:
        _print_json(arguments.user, [each.mechanism for each in passwords if each not in found])
        return 0
    print(f"user {arguments.user} cannot log in with {told} any more")
    if len(found) == len(passwords):
        print(
            "connections that are open stay until connections.max.reauth.ms has passed (by default for ever); what they"
            f" may do ends now with: kbroker acl delete --allow {shlex.quote(f'User:{arguments.user}')}"
        )
    return 0


def _print_json(user: str, mechanisms: Iterable[ScramMechanism]) -> None:
    """The mechanisms that a user can log in with now, as ``user list`` names them."""
    print_json({"user": user, "mechanisms": [mechanism.mechanism_name for mechanism in mechanisms]})


def _add_mechanism(parser: argparse.ArgumentParser, text: str) -> None:
    add_repeated(parser, "--mechanism", metavar="MECHANISM", choices=_MECHANISMS, help=text)


def _mechanisms(names: Iterable[str]) -> list[ScramMechanism]:
    from kbroker.security.sasl.scram import ScramMechanism

    found = (ScramMechanism.of_name(name) for name in dict.fromkeys(names))
    return [mechanism for mechanism in found if mechanism is not None]


def _told(mechanisms: Iterable[ScramMechanism]) -> str:
    return " and ".join(mechanism.mechanism_name for mechanism in mechanisms)


def read_password(path: Path | None, question: str) -> str:
    """The password from a file, a person (who types it twice) or standard input; :class:`FatalError` without one."""
    if path is not None:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise FatalError(f"cannot read {path}: {reason}") from None
    elif sys.stdin.isatty():
        from getpass import getpass

        text = getpass(question)
        if text != getpass("Again: "):
            raise FatalError("the two passwords are not the same")
    else:
        text = sys.stdin.readline()
    password = text.split("\n", 1)[0].rstrip("\r")
    if not password:
        raise UsageError("the password is empty: give it on standard input or in a --password-file")
    return password


ACTIONS = {
    "list": Action("list users with the mechanisms they can log in with", _list_arguments, _list),
    "add": Action("add a user, or change a user's password", _add_arguments, _add, _PASSWORD_DETAILS),
    "delete": Action("delete a user, or one of a user's passwords", _delete_arguments, _delete),
}
