"""``kbroker token``: delegation tokens, short-lived secrets that log in as a user (KIP-48)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.client.records_io.times import parse_duration
from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, checked, cluster, confirm
from kbroker.tools.cli.output import print_json, print_table, timestamp
from kbroker.tools.cli.parser import Action, UsageError, add_repeated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.client import Client
    from kbroker.client.tokens import Token
    from kbroker.security.principal import KafkaPrincipal

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
_PERIOD: Final = "30m, 12h, 7d, or milliseconds as 1500ms"

_CREATE_DETAILS: Final = """\
The secret is printed this once, or written to --out and not printed. A token logs in with SCRAM: its id is
the user's name, its secret the password, and sasl.jaas.config says tokenauth="true". It has the rights of
its owner. Tokens are made by clients that have logged in with a certificate, or with SASL and no token."""

_PERIOD_DETAILS: Final = """\
The token is one that kbroker token list shows."""


def _principal(text: str) -> KafkaPrincipal:
    from kbroker.security.principal import USER_TYPE, KafkaPrincipal, parse_principal

    return parse_principal(text) if ":" in text else KafkaPrincipal(USER_TYPE, text)


def _add_principals(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    kind = checked(_principal, "a name or of the form User:NAME")
    add_repeated(parser, option, metavar="PRINCIPAL", type=kind, help=text)


def _add_period(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    parser.add_argument(option, type=checked(_period, f"a period such as {_PERIOD}"), metavar="PERIOD", help=text)


def _period(text: str) -> int:
    try:
        period = parse_duration(text)
    except OverflowError:
        raise ValueError(text) from None
    if not 0 < period < 1 << 62:
        raise ValueError(text)
    return period


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    _add_principals(parser, "--owner", "only tokens that this user owns, may renew or has asked for")
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.client.tokens import describe_tokens

    with cluster(arguments) as client:
        found = describe_tokens(client, arguments.owner or None)
    if arguments.json:
        print_json([_document(token) for token in found])
    else:
        print_table(
            ["token", "owner", "requester", "renewers", "issued", "expires", "longest"],
            [
                [
                    token.token_id,
                    token.owner,
                    token.requester,
                    [str(renewer) for renewer in token.renewers],
                    *(timestamp(time) for time in (token.issued_ms, token.expires_ms, token.max_ms)),
                ]
                for token in found
            ],
            wrap=("owner", "requester", "renewers"),
        )
    return 0


def _document(token: Token) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--owner",
        type=checked(_principal, "a name or of the form User:NAME"),
        metavar="PRINCIPAL",
        help="user that the token logs in as (default: your own)",
    )
    _add_principals(parser, "--renewer", "user who may renew and expire it, beside its owner")
    _add_period(parser, "--max-lifetime", f"longest life of the token: {_PERIOD} (default: the cluster's)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write a client.properties that logs in with the token"
    )
    parser.add_argument(
        "--mechanism", choices=_MECHANISMS, metavar="MECHANISM", help=f"for --out (default {_DEFAULT_MECHANISM})"
    )
    add_cluster_arguments(parser)


def _create(arguments: argparse.Namespace) -> int:
    from kbroker.client.tokens import create_token

    if arguments.mechanism and arguments.out is None:
        raise UsageError("--mechanism is for --out")
    properties = None if arguments.out is None else _properties_for(arguments)
    with cluster(arguments) as client:
        token = create_token(
            client, owner=arguments.owner, renewers=arguments.renewer, max_lifetime_ms=arguments.max_lifetime
        )
    if properties is not None:
        _write(arguments.out, properties, token)
    if arguments.json:
        print_json(_document(token) | ({} if properties is not None else {"hmac": token.password}))
        return 0
    print(f"token {token.token_id} logs in as {token.owner} until {timestamp(token.expires_ms)}")
    if token.max_ms > token.expires_ms:
        print(f"it can be renewed until {timestamp(token.max_ms)}: kbroker token renew {token.token_id}")
    print(f"its secret is {f'in {arguments.out}' if properties is not None else token.password}")
    return 0


def _properties_for(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties of a client that logs in with a token, but for the token, told before there is one."""
    from kbroker.config import read_properties_file

    config = arguments.command_config
    given = {} if config is None else read_properties_file(config)
    protocol = given.get("security.protocol", "").strip().upper()
    if not protocol.startswith("SASL_"):
        raise UsageError(
            "--out needs --command-config with security.protocol SASL_SSL or SASL_PLAINTEXT: tokens use SASL"
        )
    kept = {name: value for name, value in given.items() if not name.startswith("sasl.")}
    if arguments.bootstrap_server:
        kept["bootstrap.servers"] = arguments.bootstrap_server
    return kept | {"sasl.mechanism": arguments.mechanism or _DEFAULT_MECHANISM}


def _write(path: Path, properties: Mapping[str, str], token: Token) -> None:
    from kbroker.config.properties_file import format_properties
    from kbroker.tools.cli.certificate_files import write_secret
    from kbroker.tools.cli.secure_setup import login_line

    login = {"username": token.token_id, "password": token.password, "tokenauth": "true"}
    given = {**properties, "sasl.jaas.config": login_line(properties["sasl.mechanism"], login)}
    write_secret(path, format_properties(given, f"Properties of clients, token {token.token_id} of {token.owner}."))


def _renew_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="the token's id")
    _add_period(parser, "--period", f"for so long from now: {_PERIOD} (default: as long as the cluster allows)")
    add_cluster_arguments(parser)


def _renew(arguments: argparse.Namespace) -> int:
    from kbroker.client.tokens import renew_token

    with cluster(arguments) as client:
        token = _found(client, arguments.token)
        _tell(arguments, token, renew_token(client, token, arguments.period))
    return 0


def _expire_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="the token's id")
    _add_period(parser, "--in", f"so long from now: {_PERIOD} (default: now, and the token is deleted)")
    add_cluster_arguments(parser)


def _expire(arguments: argparse.Namespace) -> int:
    from kbroker.client.tokens import expire_token

    period = getattr(arguments, "in")
    with cluster(arguments) as client:
        token = _found(client, arguments.token)
        if period is None and not confirm(f"Delete token {token.token_id} of {token.owner}?", arguments.yes):
            return 1
        _tell(arguments, token, expire_token(client, token, period))
    return 0


def _tell(arguments: argparse.Namespace, token: Token, expires_ms: int) -> None:
    if arguments.json:
        print_json({"token_id": token.token_id, "expires_ms": expires_ms})
    else:
        print(f"token {token.token_id} expires at {timestamp(expires_ms)}")


def _found(client: Client, token_id: str) -> Token:
    """The token of this id. Its secret, by which brokers know it, need not stand in the command line."""
    from kbroker.client.tokens import describe_tokens

    for token in describe_tokens(client):
        if token.token_id == token_id:
            return token
    raise FatalError(f"there is no token {token_id} that you may see")


ACTIONS = {
    "list": Action("list delegation tokens, without their secrets", _list_arguments, _list),
    "create": Action("make a token that logs in as a user", _create_arguments, _create, _CREATE_DETAILS),
    "renew": Action("have a token expire later", _renew_arguments, _renew, _PERIOD_DETAILS),
    "expire": Action("delete a token, or have it expire sooner", _expire_arguments, _expire, _PERIOD_DETAILS),
}
