"""``kbroker certs``: a certificate authority of one's own, and certificates for nodes and clients."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.errors import FatalError
from kbroker.tools.cli.common import positive
from kbroker.tools.cli.parser import UsageError, add_repeated

if TYPE_CHECKING:
    from kbroker.tools.cli.certificate_files import CertificateFiles

_PASSWORD_FILE = "stores.password"

DETAILS = """\
DIR gets ca.pem, which nodes and clients have to trust, and for each --host and --client a file NAME.pem:
private key and certificates, as ssl.keystore.type=PEM has them. All files but ca.pem and the stores' own
can be read by their owner only; ca.key signs certificates, and needs to be on no node. What is there
already is kept, so that more can be added later; --renew makes the named certificates anew, and without
--host and --client all that the authority in DIR has issued, each with the names that it has.

A node that has several names: --host kafka1,kafka1.example.org,10.0.0.1. The first gives the file its
name. Without --host and --client there is one certificate, for localhost. It prints the properties that
go with each file. Clients are known as User:CN=NAME (see ssl.principal.mapping.rules)."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``certs``."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the files are, or go")
    add_repeated(
        parser, "--host", metavar="NAME[,NAME...]", help="certificate of a node with these names and addresses"
    )
    add_repeated(parser, "--client", metavar="NAME", help="certificate of a client")
    parser.add_argument("--days", type=positive, metavar="COUNT", help="how long certificates are valid (default 825)")
    parser.add_argument("--renew", action="store_true", help="make certificates anew that are there already")
    parser.add_argument(
        "--pkcs12", action="store_true", help="stores of type PKCS12 as well, for programs that do not read PEM"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make what is not there, and tell how it is used."""
    from kbroker.tools.cli.certificate_files import LOCAL_HOSTS, CertificateFiles

    nodes = [[name.strip() for name in host.split(",")] for host in arguments.host]
    if not all(name for names in nodes for name in names) or not all(arguments.client):
        raise UsageError("a name is empty")
    firsts = [names[0] for names in nodes] + arguments.client
    if len({name.lower() for name in firsts}) != len(firsts):
        raise UsageError("two certificates would have the same name")
    files = CertificateFiles(arguments.directory)
    if not nodes and not arguments.client:
        if arguments.renew and not files.is_new:
            return _renew_all(files, arguments)
        nodes = [list(LOCAL_HOSTS)]
    print(f"{'made' if files.is_new else 'kept'} {files.ca_file}, the certificate to trust")
    wanted = [(names[0], names, "server.properties") for names in nodes]
    wanted += [(name, [], "client.properties") for name in arguments.client]
    for name, hosts, where in wanted:
        path, is_new = files.issue(name, hosts, days=arguments.days, renew=arguments.renew)
        if is_new and not arguments.pkcs12:
            _renew_stores(files, path, arguments)
        ends = files.expiry(path)
        print(f"\n{'made' if is_new else 'kept'} {path}, valid until {ends:%Y-%m-%d}. For its {where}:\n")
        if where == "client.properties":
            print("security.protocol=SSL")
        if arguments.pkcs12:
            _print_stores("PKCS12", *files.write_pkcs12(path, _store_password(arguments.directory)))
            print("# ssl.keystore.password and ssl.truststore.password: both are the line in")
            print(f"# {(arguments.directory / _PASSWORD_FILE).absolute()}")
        else:
            _print_stores("PEM", path, files.ca_file)
        if where == "server.properties":
            if arguments.client:
                print("ssl.client.auth=required")
            else:
                print("# Of a listener SSL, who asks for its clients' certificates (kbroker certs --client NAME):")
                print("# listener.name.NAME.ssl.client.auth=required")
    return 0


def _renew_all(files: CertificateFiles, arguments: argparse.Namespace) -> int:
    """Make all certificates of the directory anew."""
    ours, others = files.issued()
    for path in others:
        print(f"left {path}, which is not a certificate of {files.ca_file}")
    for name, hosts in ours:
        path, _ = files.issue(name, hosts, days=arguments.days, renew=True)
        _renew_stores(files, path, arguments)
        whom = f" for {', '.join(hosts)}" if hosts else ""
        print(f"renewed {path}{whom}, valid until {files.expiry(path):%Y-%m-%d}")
    if not ours:
        raise FatalError(f"{arguments.directory} has no certificate to renew: give --host or --client")
    return 0


def _renew_stores(files: CertificateFiles, path: Path, arguments: argparse.Namespace) -> None:
    """Keep a store of type PKCS12 that was made beside a certificate from going on with the old one."""
    was_made = path.with_suffix(".p12").exists() and (arguments.directory / _PASSWORD_FILE).exists()
    if arguments.pkcs12 or was_made:
        files.write_pkcs12(path, _store_password(arguments.directory))


def _print_stores(kind: str, key_store: Path, trust_store: Path) -> None:
    print(f"ssl.keystore.type={kind}\nssl.keystore.location={key_store.absolute()}")
    print(f"ssl.truststore.type={kind}\nssl.truststore.location={trust_store.absolute()}")


def _store_password(directory: Path) -> str:
    """The one password of the directory's stores, made when it is first wanted; it is shown nowhere."""
    from kbroker.tools.cli.certificate_files import write_secret

    path = directory / _PASSWORD_FILE
    try:
        if path.exists():
            return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    password = secrets.token_urlsafe(24)
    write_secret(path, f"{password}\n")
    return password
