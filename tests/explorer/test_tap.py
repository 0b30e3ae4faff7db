"""A node shows its exchanges: how much, to whom, and what becomes of the rest."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.node.explorer import tap as module
from kbroker.node.explorer import watcher as watchers
from kbroker.node.explorer.budget import ENOUGH, EXCHANGE, RESERVE, SAVED, SHARE
from kbroker.node.explorer.kept_frames import CUT_OFF
from kbroker.node.explorer.not_shown import TOO_FAST, UNANSWERED
from kbroker.node.explorer.tap import Tap, WatchedConnection
from kbroker.node.explorer.watched_requests import WatchedRequests
from kbroker.node.explorer.watcher import MAX_WAITING_BYTES, TOO_SLOW, Watcher
from kbroker.node.peers.http_server import may_ask
from kbroker.node.serving.observed_requests import ObservedReplyQueue
from kbroker.observe.explorer.decoded import Decoded
from kbroker.observe.explorer.exchange import MAX_KEPT, Closed, ConnectionInfo, Exchange, Skipped, whole_frame
from kbroker.observe.explorer.lines import item_of, line_of
from kbroker.runtime.later import Later
from kbroker.runtime.round import Round
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from kbroker.wire.registry import API_KEYS
from tests.explorer.exchanges import CONNECTION, request_frame, response_frame
from tests.with_each import with_each

HEARTBEAT = 12
BURST = (SAVED - RESERVE) / EXCHANGE
"""Exchanges that can be seen at once, if no time is spent on them that can be measured."""


class Clock:
    """Takes the place of ``perf_counter``, and of the node's environment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spent = 0.0
        """Processor time."""

    def __call__(self) -> float:
        return self.now

    def wall_clock_ms(self) -> int:
        return 1000


class Client:
    """A connection of which a tap asks who it is."""

    def __init__(self, *, is_controller: bool = False) -> None:
        self.peer = "127.0.0.1:40000"
        self.listener_name = "PLAINTEXT"
        self.is_controller = is_controller
        self.principal = "User:ANONYMOUS"
        self.client_software_name = self.client_software_version = "unknown"
        self.when_closed: list[Callable[[], None]] = []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(module, "thread_time", lambda: clock.spent)
    return clock


def heartbeat(client: str | None = "me") -> memoryview:
    return memoryview(request_frame(HeartbeatRequest(group_id="g"), 4, client))


def ask(tap: Tap, seen: WatchedConnection, frame: memoryview, answer: bytes | None = None) -> bool:
    begun = tap.begin(seen, frame)
    if begun is None:
        return False
    reply = response_frame(HeartbeatResponse(), 4) if answer is None else answer
    begun.answered(functools.partial(whole_frame, reply))
    return True


METADATA = memoryview(request_frame(MetadataRequest(topics=[]), 12, "me"))


def connected(tap: Tap, client: Client | None = None) -> WatchedConnection:
    connection: Any = client or Client()
    return tap.connected(connection)


def test_each_connection_is_told_before_its_first_exchange_and_again_when_it_has_changed(clock: Clock) -> None:
    tap, client, watcher = Tap(clock, 1), Client(), Watcher()  # type: ignore[arg-type]
    seen = connected(tap, client)
    tap.add(watcher)
    ask(tap, seen, heartbeat())
    client.client_software_name, client.client_software_version = "lib", "2"
    ask(tap, seen, heartbeat())
    ask(tap, seen, heartbeat())
    for callback in client.when_closed:
        callback()
    items = watcher.take(100)
    kinds = [type(item) for item in items]
    assert kinds == [ConnectionInfo, Exchange, ConnectionInfo, Exchange, Exchange, Closed]
    assert [item.software for item in items if isinstance(item, ConnectionInfo)] == ["unknown", "lib 2"]
    assert tap.connections() == []


def test_a_request_without_an_answer_is_told_when_its_connection_ends(clock: Clock) -> None:
    tap, client, watcher = Tap(clock, 1), Client(), Watcher()  # type: ignore[arg-type]
    seen = connected(tap, client)
    tap.add(watcher)
    begun = tap.begin(seen, heartbeat())
    assert begun is not None and not watcher.take(9)
    for callback in client.when_closed:
        callback()
    _, exchange, _ = watcher.take(9)
    assert isinstance(exchange, Exchange) and exchange.response is None and exchange.end == CUT_OFF
    begun.answered(lambda: whole_frame(b"late"))
    assert not watcher.take(9)


def test_a_mistake_of_the_explorer_is_not_the_client_s(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)

    def broken() -> None:
        raise ValueError("a mistake")

    begun = tap.begin(seen, heartbeat())
    assert begun is not None
    begun.answered(broken)
    assert "API key 12 cannot be shown" in caplog.text and not watcher.take(9)
    assert tap.begin(seen, b"short") is None


def test_beyond_the_limit_requests_are_counted_and_no_more(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen, frame = connected(tap), heartbeat()
    tap.add(watcher)
    asked = int(BURST) + 500
    taken = sum(ask(tap, seen, frame) for _ in range(asked))
    assert abs(taken - BURST) < 2 and not tap.budget.is_open
    assert tap.take_skipped(watcher) == [Skipped({12: asked - taken}, TOO_FAST)]
    assert not tap.take_skipped(watcher)
    clock.now += 1.0
    tap.refill()
    assert not ask(tap, seen, frame)  # what has been saved is not enough for a sequence
    clock.now += 1.0
    assert not ask(tap, seen, frame)  # until somebody comes to take them
    tap.refill()
    assert abs(sum(ask(tap, seen, frame) for _ in range(3000)) - 2 * SHARE / EXCHANGE) < 2


class Untouchable:
    """A frame of which nothing but its length and the API key may be looked at."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: object) -> int:
        assert index in (0, 1), "no part of a request is copied or decoded before it is known to be shown"
        return 12 if index else 0


def test_what_is_not_shown_costs_a_count(clock: Clock) -> None:
    """However many requests come, the copies of a second are bounded; the others are not even looked at."""
    tap, watcher, queue = Tap(clock, 1), Watcher(), Queue()  # type: ignore[arg-type]
    requests, sees_each = requests_of(tap, queue)
    frame: Any = Untouchable()
    requests.received(heartbeat())
    assert sees_each == [True, False], "of the first request the client id is taken"
    tap.add(watcher)
    assert sees_each[-1]
    while tap.budget.is_open:
        requests.received(heartbeat())
        requests.failed(ValueError())
    requests.received(frame)
    assert tap.take_skipped(watcher) == [Skipped({12: 1}, TOO_FAST)]
    tap.remove(watcher)
    assert not sees_each[-1]


@pytest.mark.parametrize("cost", [20e-6, 200e-6, 5e-3])
def test_a_share_of_a_processor_is_spent_whatever_an_exchange_costs(clock: Clock, cost: float) -> None:
    """A flood of 50 connections: what is shown comes in sequences; every rare request is shown."""
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    connections = [connected(tap) for _ in range(50)]
    tap.add(watcher)
    asked = shown = rare_shown = begins = 0
    seconds, rare_cost = 10, 20e-6
    was_open = False

    def see(seen: WatchedConnection, frame: memoryview, cost: float) -> bool:
        begun = tap.begin(seen, frame)
        if begun is None:
            return False

        def answer() -> None:
            clock.spent += cost

        begun.answered(answer)
        return True

    for turn in range(seconds * 10):
        for seen in connections * 4:
            asked += 1
            is_open = see(seen, heartbeat(), cost)
            begins += is_open and not was_open
            was_open = is_open
        if turn % 20 == 19:
            asked += 1
            see(connections[turn % 50], METADATA, rare_cost)
        clock.now += 0.1
        tap.refill()
        items = [item for item in watcher.take(10**6) if isinstance(item, Exchange)]
        shown += len(items)
        rare_shown += sum(item.api_key == 3 for item in items)
    [skipped] = tap.take_skipped(watcher)
    assert shown + skipped.counts[12] == asked
    most = SHARE * seconds + SAVED
    assert clock.spent <= most + cost
    assert clock.spent + shown * EXCHANGE >= 0.4 * SHARE * seconds
    assert rare_shown == seconds / 2 or cost > 1e-3
    assert begins <= 1 + SHARE * seconds / (ENOUGH - RESERVE)
    clock.now += 60
    tap.refill()
    assert tap.budget.is_open


def test_large_messages_count_by_the_time_that_they_take(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)

    def decoded() -> None:
        clock.spent += 0.01

    taken = 0
    while (begun := tap.begin(seen, heartbeat())) is not None:
        taken += 1
        begun.answered(decoded)
    assert taken == 8
    clock.now += 10
    tap.refill()
    assert ask(tap, seen, heartbeat())


def test_whoever_asks_for_little_loses_nothing_to_the_rest(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher([0], "you")  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)
    assert not any(ask(tap, seen, heartbeat()) for _ in range(int(BURST) + 5))
    assert not tap.take_skipped(watcher)
    produce = memoryview(bytes(8) + b"\0\3you" + bytes(20))
    assert ask(tap, seen, produce) and not ask(tap, seen, memoryview(bytes(8) + b"\0\2me" + bytes(20)))


def test_controllers_are_shown_to_those_who_ask(clock: Clock) -> None:
    tap, plain = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap, Client(is_controller=True))
    tap.add(plain)
    assert not ask(tap, seen, heartbeat())
    curious = Watcher(controllers=True)
    tap.add(curious)
    assert ask(tap, seen, heartbeat()) and len(curious.take(9)) == 2 and not plain.take(9)
    tap.remove(curious)
    assert not ask(tap, seen, heartbeat())
    tap.remove(plain)
    assert not tap.is_watched


def test_a_slow_watcher_loses_the_oldest_and_is_told(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)
    large = memoryview(request_frame(HeartbeatRequest(group_id="g" * 10_000), 4))
    number = MAX_WAITING_BYTES // 10_000 + 50
    for _ in range(number):
        assert ask(tap, seen, large)
    items = watcher.take(10**6)
    skipped, *_ = items
    assert isinstance(skipped, Skipped) and skipped.why == TOO_SLOW
    kept = [item for item in items if isinstance(item, Exchange)]
    assert len(kept) + skipped.counts[12] == number and kept[-1].number == number
    assert sum(item.request.kept for item in kept) <= MAX_WAITING_BYTES


def test_the_end_of_a_connection_costs_the_same_however_much_waits(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    client = Client()
    seen = connected(tap, client)
    tap.add(watcher)
    assert ask(tap, seen, heartbeat())
    waiting: Any = watcher._waiting

    class Counted(deque[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("all that waits is looked through")

    watcher._waiting = Counted(waiting)
    for callback in client.when_closed:
        callback()
    unknown = Client()
    connected(tap, unknown)
    unknown.when_closed[0]()  # of which nobody has heard
    assert [type(item) for item in watcher.take(9)] == [ConnectionInfo, Exchange, Closed]
    assert watcher._bytes == 0 and not watcher._waiting_of


def test_a_slow_watcher_does_not_keep_all_ends_of_connections(clock: Clock) -> None:
    watcher, most = Watcher(), watchers.MAX_WAITING_BYTES // watchers.CLOSED_BYTES
    for number in range(most + 200):
        watcher._told[number] = CONNECTION
        watcher.connection_closed(number, 1)
    assert len(watcher.take(2 * most)) <= most


def test_requests_that_wait_for_their_answers_are_bounded(clock: Clock) -> None:
    most = 5 * (watchers.EXCHANGE_BYTES + len(heartbeat()))
    tap, watcher = Tap(clock, 1, max_pending_bytes=most), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)
    waiting = [tap.begin(seen, heartbeat()) for _ in range(7)]
    assert [begun is not None for begun in waiting] == [True] * 5 + [False] * 2
    assert tap.take_skipped(watcher) == [Skipped({12: 2}, UNANSWERED)]
    assert waiting[0] is not None
    waiting[0].answered(lambda: whole_frame(response_frame(HeartbeatResponse(), 4)))
    assert tap.begin(seen, heartbeat()) is not None and tap.begin(seen, heartbeat()) is None
    tap.budget.spend(SAVED)
    assert [tap.begin(seen, heartbeat()) for _ in range(3)] == [None] * 3
    assert tap.take_skipped(watcher) == [Skipped({12: 3}, TOO_FAST), Skipped({12: 1}, UNANSWERED)]
    assert "16 MiB" in UNANSWERED and not tap.take_skipped(watcher)
    tap.remove(watcher)
    assert not tap.pending and not tap.pending_bytes and not seen.waiting
    assert waiting[1] is not None and not waiting[1].request.size
    waiting[1].answered(lambda: whole_frame(response_frame(HeartbeatResponse(), 4)))
    assert not tap.pending_bytes


def test_a_login_that_fails_is_closed_and_forgotten(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    tap.add(watcher)
    client: Any = Client()
    logged_in(tap, request_frame(SaslAuthenticateRequest(), 2), (36,), client=client)
    other: Any = Client()
    tap.login_failed(other)  # which has the same address, and was not seen
    assert len(tap._logins) == 1
    tap.login_failed(client)
    info, exchange, closed = watcher.take(9)
    assert isinstance(info, ConnectionInfo) and isinstance(exchange, Exchange)
    assert closed == Closed(info.number, 1) and not tap._logins


def test_large_frames_are_cut_and_copied(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)
    buffer = bytearray(bytes(8) + b"\0\2me" + b"r" * (3 * MAX_KEPT))
    assert ask(tap, seen, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    exchange = watcher.take(9)[-1]
    assert isinstance(exchange, Exchange) and exchange.request.size == len(buffer)
    assert exchange.request.kept == MAX_KEPT and b"rrr" in exchange.request.filled()


def test_secrets_are_gone_before_anything_waits(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)
    for secret in (b"hunter2", b"hunter2" * 100_000):
        frame = request_frame(SaslAuthenticateRequest(auth_bytes=secret), 2)
        answer = response_frame(SaslAuthenticateResponse(auth_bytes=secret), 2)
        assert ask(tap, seen, memoryview(frame), answer)
    items = [item for item in watcher.take(9) if isinstance(item, Exchange)]
    assert len(items) == 2 and all(item.is_redacted for item in items)
    for item in items:
        assert item.response is not None
        assert b"hunter2" not in item.request.filled() + item.response.filled()


BARE_TOKEN = b"\0alice\0hunter2-hunter2"


def logged_in(
    tap: Tap, frame: bytes, api_keys: tuple[int, ...], reply: bytes | None = None, client: Any = None
) -> None:
    """A frame of a client that logs in, answered or refused."""

    async def answer() -> bytes:
        if reply is None:
            raise ValueError(f"unexpected API key {int.from_bytes(frame[:2], 'big')}")
        return reply

    shown: Any = client or Client()
    coroutine = tap.login(shown, frame, answer(), api_keys)
    with contextlib.suppress(StopIteration, ValueError):
        coroutine.send(None)


@with_each(product([*API_KEYS, 97], [(17, 18), (17, 18, 36)]))
def test_of_a_token_without_a_header_only_the_size_is_shown(key: int, api_keys: tuple[int, ...], clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    tap.add(watcher)
    token = key.to_bytes(2, "big") + BARE_TOKEN[2:]
    logged_in(tap, token, api_keys)
    logged_in(tap, token, api_keys, bytes(4) + token[4:8] + b"hunter2")
    shown = [item for item in watcher.take(9) if isinstance(item, Exchange)]
    assert len(shown) == 2 and shown[0].end == CUT_OFF
    for item in shown:
        assert item.api_key == -1 and item.request.size == len(token) and item.is_redacted
        line = line_of(item)
        assert token[4:8] not in item.request.filled() and item_of(line) == item
        assert item.response is None or not any(item.response.filled())
        assert Decoded(item, None).name == "hidden frame"


def test_requests_of_a_login_are_shown_where_they_belong(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    tap.add(watcher)
    login = request_frame(SaslAuthenticateRequest(auth_bytes=BARE_TOKEN), 2)
    versions = request_frame(ApiVersionsRequest(), 4)
    later = versions[:2] + (99).to_bytes(2, "big") + versions[4:]
    for frame, api_keys in ((login, (17, 18)), (versions, (17, 18)), (later, (17, 18)), (login, (17, 18, 36))):
        logged_in(tap, frame, api_keys)
    shown = [item for item in watcher.take(9) if isinstance(item, Exchange)]
    assert [item.api_key for item in shown] == [-1, 18, 18, 36]
    assert all(b"hunter2" not in item.request.filled() for item in shown)


def test_of_an_unknown_api_no_bytes_are_shown(clock: Clock) -> None:
    tap, watcher = Tap(clock, 1), Watcher()  # type: ignore[arg-type]
    seen = connected(tap)
    tap.add(watcher)
    assert ask(tap, seen, memoryview(b"\3\xe7hunter2 hunter2"), b"nter answer")
    exchange = watcher.take(9)[-1]
    assert isinstance(exchange, Exchange) and exchange.response is not None and exchange.is_redacted
    assert b"nter" not in exchange.request.filled() + exchange.response.filled()


@pytest.mark.parametrize(
    ("headers", "own_host", "allowed"),
    [
        ({"host": "127.0.0.1:9292"}, "127.0.0.1", True),
        ({"host": "localhost:9292"}, "127.0.0.1", True),
        ({"host": "[::1]:9292"}, "::1", True),
        ({"host": "evil.example:9292"}, "127.0.0.1", False),
        ({}, "127.0.0.1", False),
        ({"host": "[nonsense"}, "127.0.0.1", False),
        ({"host": "node1:9292"}, "node1", True),
        ({"host": "node1:9292"}, "", False),
        ({"host": "127.0.0.1:9292", "origin": "http://127.0.0.1:9292"}, "127.0.0.1", True),
        ({"host": "127.0.0.1:9292", "origin": "http://evil.example"}, "127.0.0.1", False),
        ({"host": "127.0.0.1:9292", "origin": "null"}, "127.0.0.1", False),
        ({"host": "127.0.0.1:9292", "sec-fetch-site": "same-origin"}, "127.0.0.1", True),
        ({"host": "127.0.0.1:9292", "sec-fetch-site": "none"}, "127.0.0.1", True),
        ({"host": "127.0.0.1:9292", "sec-fetch-site": "same-site"}, "127.0.0.1", False),
        ({"host": "127.0.0.1:9292", "sec-fetch-site": "cross-site"}, "127.0.0.1", False),
    ],
)
def test_pages_of_others_may_not_ask(headers: dict[str, str], own_host: str, allowed: bool) -> None:
    assert may_ask(headers, own_host) is allowed


class Queue:
    """The replies of a connection."""

    def __init__(self) -> None:
        self.slots: deque[Any] = deque()
        self.parts: deque[Any] = deque()


def requests_of(tap: Tap, queue: Any) -> tuple[WatchedRequests, list[bool]]:
    """The requests of a connection, and whether each is seen, from one time to the next."""
    connection: Any = Client()
    sees_each: list[bool] = []
    dispatcher: Any = SimpleNamespace(see_each=lambda observer, wanted: sees_each.append(wanted))
    return WatchedRequests(tap, connection, dispatcher, queue), sees_each


def with_one(tap: Tap, queue: Queue) -> WatchedRequests:
    """The requests of a connection; one that a shortcut serves has come."""
    requests, _ = requests_of(tap, queue)
    requests.received(heartbeat())
    assert tap.pending
    return requests


@pytest.mark.parametrize("earlier", ["no other", "one that waits", "one that comes in the round"])
def test_what_is_shown_of_a_round_is_what_was_sent(clock: Clock, earlier: str) -> None:
    """Also of a reply that an earlier one's completion has moved on before it was replaced."""
    tap, watcher, round, later = Tap(clock, 1), Watcher(), Round(), Later[Any]()  # type: ignore[arg-type]
    tap.add(watcher)
    not_used: Any = None
    queue = ObservedReplyQueue(not_used, not_used, not_used, not_used, not_used)
    requests, _ = requests_of(tap, queue)
    queue.observe([requests])
    queue.round_open = True
    if earlier != "no other":
        queue.delay(later, HEARTBEAT, 4, 1)
    requests.received(heartbeat())
    good, bad = (HeartbeatResponse(error_code=code) for code in (0, 56))
    reply = bytes(4) + response_frame(good, 4)
    queue.add([reply])
    requests.served(round)
    assert not watcher.take(9)
    if earlier == "one that comes in the round":
        later.set(good)
    queue.replace_unsent(reply, bad, HEARTBEAT, 4)  # as where a batch could not be written
    round.end()
    exchange = watcher.take(9)[-1]
    assert isinstance(exchange, Exchange) and exchange.response is not None
    assert exchange.response.filled() == response_frame(bad, 4)


def test_replies_that_were_dropped_with_their_connection_are_not_shown(clock: Clock) -> None:
    tap, watcher, queue, round = Tap(clock, 1), Watcher(), Queue(), Round()  # type: ignore[arg-type]
    tap.add(watcher)
    requests = with_one(tap, queue)
    queue.parts.append(bytes(4) + response_frame(HeartbeatResponse(), 4))
    requests.served(round)
    queue.parts.clear()
    round.end()
    exchange = watcher.take(9)[-1]
    assert isinstance(exchange, Exchange) and exchange.response is None and exchange.end == CUT_OFF
