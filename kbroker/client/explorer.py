"""The stream of a node's protocol explorer, over HTTP, for those who watch."""

from __future__ import annotations

import http.client
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from kbroker.client.errors import ClientError
from kbroker.observe.explorer.exchange import ClientInfo, ConnectionInfo, Names
from kbroker.observe.explorer.lines import Item, item_of
from kbroker.wire.errors import WireError

SILENCE_SECONDS: Final = 15.0
"""A node says something every second: after so long it is gone."""

IDS_AT_ONCE: Final = 50


class ExplorerClient:
    """Watches one node. Its errors are ``ClientError``."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None

    def open(self, *, apis: Collection[str] = (), client: str = "", controllers: bool = False) -> None:
        """Begin to watch: what comes from now on is in ``items``.

        ``apis``: names, all if it is empty; ``client``: a part of the client id; ``controllers``: also what controllers
        are asked.
        """
        query = f"api={quote(','.join(apis))}&client={quote(client)}&controllers={int(controllers)}"
        self._response = self._ask(f"/exchanges?{query}")

    def items(self) -> Iterator[Item | None]:
        """The exchanges, one after the other; None when nothing has come for a while. Ends when the node does."""
        response = self._response
        assert response is not None, "open() comes first"
        try:
            while line := response.readline():
                yield item_of(line)
        except WireError as error:
            raise ClientError(f"{self.address}: {error}") from None
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            return  # it has ended, or was closed from here

    def names(self, ids: Collection[str]) -> dict[str, str]:
        """Names of topics by the texts of their ids, of those that the node knows."""
        wanted = list(ids)
        found: dict[str, str] = {}
        for begin in range(0, len(wanted), IDS_AT_ONCE):
            for item in self._get(f"/names?ids={','.join(wanted[begin : begin + IDS_AT_ONCE])}"):
                if isinstance(item, Names):
                    found.update(item.topics)
        return found

    def known_names(self, ids: Collection[str]) -> dict[str, str]:
        """The ``names``; nothing where the node does not answer: what it has said is shown without names."""
        try:
            return self.names(ids)
        except ClientError:
            return {}

    def connections(self) -> list[ClientInfo]:
        """The connections that are open, as far as the node tells of them."""
        items = self._get("/connections")
        told = [ClientInfo(item) if isinstance(item, ConnectionInfo) else item for item in items]
        return [each for each in told if isinstance(each, ClientInfo)]

    def close(self) -> None:
        """Watch no more. Another thread that reads ``items`` comes to their end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(2)
            connection.close()

    def _get(self, target: str) -> list[Item]:
        beside = ExplorerClient(self._host, self._port)
        response = beside._ask(target)
        try:
            return [item for item in map(item_of, response.read().splitlines()) if item is not None]
        except (OSError, http.client.HTTPException, WireError) as error:
            raise ClientError(f"{self.address}: {error}") from None
        finally:
            beside.close()

    def _ask(self, target: str) -> http.client.HTTPResponse:
        connection = self._connection = http.client.HTTPConnection(self._host, self._port, timeout=SILENCE_SECONDS)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            if response.status != 200:
                text = response.read(1000).decode("utf-8", "replace").strip()
                raise ClientError(f"the explorer at {self.address} answers {response.status}: {text}")
        except OSError as error:
            self.close()
            reason = error.strerror or error
            raise ClientError(
                f"no explorer at {self.address}: {reason} (is the node started with --explorer?)"
            ) from None
        except http.client.HTTPException as error:
            self.close()
            raise ClientError(f"{self.address} is no explorer: {type(error).__name__}") from None
        return response
