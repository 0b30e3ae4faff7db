"""The protocol explorers of nodes, watched for the page: while somebody looks, and a little longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from kbroker.client.errors import ClientError
from kbroker.client.explorer import ExplorerClient
from kbroker.observe.explorer.feed import Feed, FeedReader

MAX_READERS: Final = 16
"""Pages that look at once."""

LINGER_SECONDS: Final = 30.0
"""Nodes are watched for so long after the last page has gone: a page that is loaded again has what it had."""

RETRY_SECONDS: Final = 2.0
"""Before a node is asked again that did not answer, or has ended."""


class Watching:
    """The nodes' explorers, followed by a thread each into one feed.

    Nobody is watched before the first ``enter``: a node's explorer costs next to nothing until then.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.feed = Feed()
        self.addresses = tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)
        self._addresses = tuple(addresses)
        self._lock = threading.Lock()
        self._readers = 0
        self._left_at = 0.0
        self._ends_soon = False
        """Whether a timer is set, of which there is one at most however often pages come and go."""
        self._stop: threading.Event | None = None
        self._clients: list[ExplorerClient] = []
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """The explorers that are not followed now, by address, with the reason."""
        with self._lock:
            return dict(self._problems)

    def nodes(self) -> list[ExplorerClient]:
        """The nodes, to be asked aside."""
        return [ExplorerClient(*address) for address in self._addresses]

    def enter(self) -> FeedReader | None:
        """A reader of the feed, to be given back by ``leave``; None if there are too many."""
        with self._lock:
            if self._readers >= MAX_READERS:
                return None
            self._readers += 1
            if self._stop is None:
                self._begin()
        return self.feed.read()

    def leave(self, reader: FeedReader) -> None:
        """A page has gone. The nodes are watched a little longer, unless another page comes."""
        reader.close()
        with self._lock:
            self._readers -= 1
            self._left_at = time.monotonic()
            if not self._readers and not self._ends_soon:
                self._end_later(LINGER_SECONDS)

    def _end_later(self, seconds: float) -> None:
        self._ends_soon = True
        timer = threading.Timer(seconds, self._end_if_unused)
        timer.daemon = True
        timer.start()

    def _begin(self) -> None:
        stop = self._stop = threading.Event()
        self._problems = dict.fromkeys(self.addresses, "it has not answered yet")
        for host, port in self._addresses:
            threading.Thread(target=self._follow, args=(host, port, stop), daemon=True).start()

    def _end_if_unused(self) -> None:
        with self._lock:
            self._ends_soon = False
            if self._readers or self._stop is None:
                return
            left = self._left_at + LINGER_SECONDS - time.monotonic()
            if left > LINGER_SECONDS * 0.1:
                self._end_later(left)  # a page has come and gone meanwhile
                return
            self._stop.set()
            self._stop = None
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    def _follow(self, host: str, port: int, stop: threading.Event) -> None:
        """Follow one node until nobody looks: a node that was started anew is followed again."""
        while not stop.is_set():
            node = ExplorerClient(host, port)
            with self._lock:
                if stop.is_set():
                    return
                self._clients.append(node)
            problem = self._follow_once(node)
            node.close()
            with self._lock:
                if node in self._clients:
                    self._clients.remove(node)
                if not stop.is_set():
                    self._problems[node.address] = problem
            stop.wait(RETRY_SECONDS)

    def _follow_once(self, node: ExplorerClient) -> str:
        """Take what a node tells until it ends; why it is not followed any more."""
        try:
            node.open(controllers=True)
            with self._lock:
                self._problems.pop(node.address, None)
            for item in node.items():
                if item is not None:
                    self.feed.add(item, node.known_names)
        except ClientError as error:
            return str(error)
        return "it has ended"
