"""Object stores: the options with which tables are reached there, and errors that tell nobody a secret.

The libraries know the stores: options are passed on under their names, and what a file does not say they take from the
environment. Of a store's error one line is left, without the values of what is secret.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

from kbroker.config.properties_file import read_properties_file
from kbroker.errors import FatalError
from kbroker.tables.plan import Refused
from kbroker.tables.target import StoreAway

_SECRET_NAME: Final = re.compile(r"secret|token|password|credential|key|sas|signature|auth", re.IGNORECASE)
_ENVIRONMENT: Final = ("AWS_", "AZURE_", "GOOGLE_", "PYICEBERG_")
_AWAY: Final = re.compile(
    r"after \d+ retries|error sending request|timed out|connection (?:refused|reset|aborted)"
    r"|NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|HTTP status(?: code)?:? 5\d\d"
    r"|^(?:ConnectionError|ConnectTimeout|ReadTimeout|ChunkedEncodingError|ServerError|ServiceUnavailableError"
    r"|CommitStateUnknownException|TooManyRequestsError)\(|database is locked",
    re.IGNORECASE,
)
"""Words of the libraries in errors that may be gone later."""
_CREDENTIALS: Final = re.compile(
    r"(aws_|s3\.|client\.)?(access.key.id|web_identity_token_file|container_credentials_(relative|full)_uri"
    r"|shared_credentials_file|profile(-name)?|skip_signature|anonymous|signer)"
)
"""The names of options one of which says whose a request to S3 is."""
_MACHINES: Final = re.compile(r"/latest/(api/token|meta-data)")
_NO_CREDENTIALS: Final = (
    "there are no credentials for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are taken from the environment or"
    " from --store-options FILE"
)
_DENIED: Final = re.compile(
    r"(?=.*permission ?denied).*?(?<![\w:/])(/[^'\"#:]+?)(?=['\"#:]| Error:| Permission)", re.IGNORECASE
)
"""A file or directory that is not to be written, or read, wherever a library names it."""
_SHOWN: Final = 160
"""Characters at the beginning of a long error, and twice as many at its end, where the cause is."""
_PYICEBERGS: Final = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
}
"""Names that ``deltalake`` and the environment have -> pyiceberg's, so that a file does for both."""
_OBSTORES: Final = (
    *("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region"),
    *("aws_virtual_hosted_style_request", "aws_skip_signature", "aws_unsigned_payload"),
)
"""Options of a store like S3 that ``obstore`` needs to be given; it has no others that a put of nothing would need."""


class StoreOptions:
    """The options for a store: those of a file, and those of the environment, which the libraries read themselves."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = dict(given or {})
        self._secrets: list[str] = []
        self.hide({name: each for name, each in os.environ.items() if name.startswith(_ENVIRONMENT)})
        self.hide(self._given)

    @classmethod
    def read(cls, file: Path | None) -> StoreOptions:
        """Returns the options of a file of properties; ``FatalError``."""
        return cls(None if file is None else read_properties_file(file))

    def hide(self, options: Mapping[str, object]) -> None:
        """Let no message have the values of those options that are secret."""
        for name, value in options.items():
            if _SECRET_NAME.search(name):
                parts = {str(value), str(value).partition(":")[2]}  # pyiceberg's credential is ID:SECRET
                self._secrets += parts - {"", "true", "false", "None"}
        self._secrets.sort(key=len, reverse=True)

    def refuse_without_credentials(self, where: str, url: str, more: Iterable[str] = ()) -> None:
        """``FatalError`` if neither options nor the machine have credentials for S3, which libraries ask for long.

        ``more``: the names of other options.
        """
        lower = self._lower()
        if not url.startswith("s3") or any(map(_CREDENTIALS.fullmatch, (*lower, *more))):
            return
        if os.path.exists(os.path.expanduser("~/.aws")):
            return
        endpoint = lower.get("aws_metadata_endpoint") or lower.get("aws_ec2_metadata_service_endpoint")
        machine = urlsplit(endpoint or "http://169.254.169.254")
        with suppress(OSError), socket.create_connection((machine.hostname, machine.port or 80), 1):
            return
        raise FatalError(f"{where}: {_NO_CREDENTIALS}")

    def _lower(self) -> dict[str, str]:
        return {name.lower(): each for name, each in {**os.environ, **self._given}.items() if each}

    def for_delta(self) -> dict[str, str]:
        """Returns what ``deltalake`` wants: a store is given up soon, because the follower tries again by itself."""
        options = {"max_retries": "5", "retry_timeout": "20s", **self._given}
        lower = self._lower()
        if any(lower.get(name, "").startswith("http://") for name in ("aws_endpoint_url", "aws_endpoint")):
            options.setdefault("aws_allow_http", "true")  # its user says so
        return options

    def for_pyiceberg(self) -> dict[str, str]:
        """Returns what ``pyiceberg`` wants."""
        upper = {name.upper(): each for name, each in self._given.items()}
        found = {new: {**os.environ, **upper}.get(old) for old, new in _PYICEBERGS.items()}
        return {name: each for name, each in found.items() if each} | self._given

    def refuse_lost_commits(self, where: str, url: str) -> None:
        """``Refused`` if a store that is like S3 has no conditional put: of two commits at once it would keep one.

        ``OSError`` if it cannot be asked. S3 itself, Google's and Azure's have it.
        """
        lower = self._lower()
        endpoint = lower.get("aws_endpoint_url") or lower.get("aws_endpoint")
        if not endpoint or not url.startswith("s3"):
            return
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError
        from obstore.store import S3Store

        known: Any = {"aws_endpoint": endpoint} | {name: lower[name] for name in _OBSTORES if name in lower}
        is_open = endpoint.startswith("http://")
        try:
            retry: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
            store = S3Store.from_url(url, config=known, client_options={"allow_http": is_open}, retry_config=retry)
            name = f"_kbroker_{uuid4()}"
            obstore.put(store, name, b"")
            try:
                obstore.put(store, name, b"", mode="create")
                is_lossy = True
            except AlreadyExistsError:
                is_lossy = False
            except BaseError as error:
                if "NotImplemented" not in str(error):
                    raise
                is_lossy = True
            finally:
                obstore.delete(store, name)
        except BaseError as error:
            raise OSError(str(error).partition("Debug source")[0]) from None
        if is_lossy:
            raise Refused(
                f"{where}: the store has no conditional put (If-None-Match), without which a commit may be lost: name"
                " another store"
            )

    def line(self, text: str) -> str:
        """Returns an error as one line without secrets: the beginning of it, and the end."""
        text = re.sub(r"\x1b\[[0-9;]*m|↳|\(sqlite3\.\w+\)|\(Background on this error [^)]*\)", "", text)
        text = re.sub(r"(\w+://)[^/\s@]*@", r"\1", re.sub(r"(https?://[^\s?'\"]*)\?[^\s'\"]*", r"\1", text))
        for secret in self._secrets:
            for shape in (secret, quote(secret, safe="")):
                text = re.sub(rf"(?<!\w){re.escape(shape)}(?!\w)", "***", text)
        line = " ".join(text.split())
        return line if len(line) <= 3 * _SHOWN else f"{line[:_SHOWN]} ... {line[-2 * _SHOWN :]}"

    @contextmanager
    def readable(self, where: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
        """Turn errors of a library into ``StoreAway``, or ``FatalError``; both of one line."""
        try:
            yield
        except errors as error:
            line = self.line(str(error) or type(error).__name__)
            if _MACHINES.search(line):
                line = _NO_CREDENTIALS
            elif denied := _DENIED.search(line):
                line = f"permission denied: {denied[1]}"
            told = f"{where}: {line}"
            raise (StoreAway if is_away(error) else FatalError)(told) from None


def is_away(error: BaseException) -> bool:
    """Returns whether an error is of a store or a catalog that may answer later."""
    return not isinstance(error, FileNotFoundError | PermissionError) and bool(_AWAY.search(repr(error)))
