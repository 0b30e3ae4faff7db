"""A Kerberos KDC on loopback, for tests: MIT's ``krb5kdc`` with a realm, a database and files of its own.

It needs ``krb5kdc``, ``kdb5_util`` and ``kadmin.local`` (Debian: ``krb5-kdc``, ``krb5-admin-server``), and nothing
of ``/etc``. Whoever is to use it gets ``environment``; Java takes its ``krb5.conf`` from
``-Djava.security.krb5.conf``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.tools.cli.cluster_plan import free_ports

REALM: Final = "TEST.KBROKER"

_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_SYSTEM_PATHS: Final = "/usr/sbin:/usr/local/sbin:/opt/homebrew/opt/krb5/sbin:/opt/homebrew/opt/krb5/bin"
_START_SECONDS: Final = 120.0

_KRB5_CONF: Final = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    udp_preference_limit = 1
    default_ccache_name = FILE:{directory}/ccache
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
[dbmodules]
    {realm} = {{
        db_library = db2
        database_name = {directory}/principal
    }}
"""

_KDC_CONF: Final = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/kadm5.acl
        max_life = 24h
        max_renewable_life = 48h
        supported_enctypes = aes256-cts:normal aes128-cts:normal
    }}
[logging]
    kdc = FILE:{directory}/kdc.log
"""


class KdcError(Exception):
    """A KDC cannot be had; the message holds what its programs said."""


def missing_program() -> str | None:
    """The first program of a KDC that this machine does not have; None if all are there."""
    return next((name for name in _PROGRAMS if _program(name) is None), None)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SYSTEM_PATHS)


class Kdc:
    """A running KDC of one realm; its files are in ``directory``."""

    def __init__(self, directory: Path, realm: str = REALM) -> None:
        """Make the database and start; :class:`KdcError` if that fails."""
        self.realm = realm
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self.config = directory / "krb5.conf"
        words = {"realm": realm, "directory": directory, "port": self.port}
        self.config.write_text(_KRB5_CONF.format(**words))
        (directory / "kdc.conf").write_text(_KDC_CONF.format(**words))
        (directory / "kadm5.acl").write_text("")
        self.environment: dict[str, str] = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHENAME": f"file2:{directory / 'replays'}",
        }
        """Variables by which the programs and libraries of Kerberos find this KDC."""
        self._run("kdb5_util", "-r", realm, "create", "-s", "-P", "master")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, name: str, *arguments: str, commands: str = "") -> str:
        program = _program(name)
        if program is None:
            raise KdcError(f"there is no program {name}")
        done = subprocess.run(
            [program, *arguments],
            input=commands,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
        )
        if done.returncode:
            raise KdcError(f"{name}: {done.stderr}{done.stdout}")
        return done.stdout

    def start(self) -> None:
        """Serve, again if it was stopped; returns once it does."""
        program = _program("krb5kdc")
        assert program is not None
        self._process = subprocess.Popen(
            [program, "-n", "-r", self.realm],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise KdcError(f"krb5kdc does not start: {self.log()[-2000:]}")
            time.sleep(0.01)  # a bounded poll of another process

    def stop(self) -> None:
        """End the process; the database stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """The KDC's log so far."""
        path = self.directory / "kdc.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def add(self, *principals: str, max_life: str = "") -> None:
        """Add principals with random keys; ``max_life`` (as "10s") is the longest time that their tickets may have."""
        life = f'-maxlife "{max_life}" ' if max_life else ""
        self._run(
            "kadmin.local", "-r", self.realm, commands="".join(f"addprinc {life}-randkey {p}\n" for p in principals)
        )

    def keytab(self, name: str, *principals: str) -> Path:
        """A file with the keys of principals, which stay as they are."""
        path = self.directory / f"{name}.keytab"
        self._run("kadmin.local", "-r", self.realm, commands=f"ktadd -k {path} -norandkey {' '.join(principals)}\n")
        if not path.exists():
            raise KdcError(f"kadmin.local wrote no keytab of {', '.join(principals)}")
        return path

    def change_keys(self, principal: str) -> None:
        """Give a principal new random keys: keytabs hold old ones from then on."""
        self._run("kadmin.local", "-r", self.realm, commands=f"cpw -randkey {principal}\n")


@contextlib.contextmanager
def running_kdc(directory: Path, realm: str = REALM) -> Iterator[Kdc]:
    """A KDC that runs as long as the block does."""
    kdc = Kdc(directory, realm)
    try:
        yield kdc
    finally:
        kdc.stop()
