"""PostgreSQL on loopback, for programs that connect it with Kafka."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from compat_tests.works_with.running import Running, RunningError
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import SHORT


def postgres_programs() -> Path | None:
    """The directory of PostgreSQL's programs; None where it is not installed."""
    found = shutil.which("initdb")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return Path(found).parent if found else versions[-1].parent if versions else None


class Postgres:
    """A server with wal_level=logical and an empty database `shop`; a context manager.

    It refuses to run as root, and then runs as the user `postgres`, in a directory of that user's.
    """

    def __init__(self) -> None:
        programs = postgres_programs()
        assert programs is not None, "the caller asks for postgres_programs first"
        self._directory = Path(tempfile.mkdtemp(prefix="works-with-postgres-"))
        self._user: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self._directory, "postgres", "postgres")
            self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        (self.port,) = free_ports(1)
        data = self._directory / "data"
        self._call(str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "-E", "UTF8")
        settings = ["wal_level=logical", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        options = [word for setting in [*settings, f"port={self.port}"] for word in ("-c", setting)]
        command: list[str | Path] = [*self._user, programs / "postgres", "-D", data, *options]
        self.running = Running(command, self._directory, "postgres")
        self.running.until(lambda: self._answers("postgres"), "to answer", 60)
        self.sql("CREATE DATABASE shop", "postgres")

    def _call(self, *command: str) -> None:
        done = subprocess.run([*self._user, *command], cwd="/", capture_output=True, text=True, check=False)
        if done.returncode:
            raise RunningError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def _answers(self, database: str) -> bool:
        try:
            return self.sql("SELECT 1", database) == ["1"]
        except RunningError:
            return False

    def sql(self, statements: str, database: str = "shop") -> list[str]:
        """Run statements, each a transaction of its own; the lines of what they return, with | between columns."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *place]
        done = subprocess.run(command, input=statements, capture_output=True, text=True, timeout=SHORT, check=False)
        if done.returncode:
            raise RunningError(f"psql failed: {done.stderr}")
        return done.stdout.splitlines()

    def version(self) -> str:
        """Its version, such as 15.4."""
        return self.sql("SHOW server_version")[0].split()[0]

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.running.process.send_signal(signal.SIGQUIT)
        self.running.process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
