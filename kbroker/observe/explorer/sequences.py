"""Sequences of exchanges: a login, a rebalance, a transaction, a fetch session, the search for a new leader.

Exchanges are given in the order in which they were complete. Each is told the sequences that it is a step of, with a
sentence about the step. A sequence is recognised by what it has in common: the connection, the group, the member, the
transactional id, or the client. The number of those that are followed is bounded: the oldest is forgotten first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.observe.explorer.decoded import Decoded
from kbroker.types import uuid_to_str

MAX_FOLLOWED: Final = 10_000
"""Sequences of one kind that are followed at a time."""

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which a client asks for new metadata."""

_LOST_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_NEW_SESSION: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Step(NamedTuple):
    """An exchange as a step of a sequence."""

    number: int
    """The sequence's: they are counted as they begin."""
    kind: str
    subject: str
    """The owner of the sequence: a group, a connection, ..."""
    place: int
    """1 for the first step."""
    text: str
    is_end: bool = False

    @property
    def name(self) -> str:
        """``rebalance of group g``."""
        return f"{self.kind} of {self.subject}"

    def __str__(self) -> str:
        return f"{self.name} (sequence {self.number}, step {self.place}): {self.text}"


class _Open:
    """A sequence that has begun."""

    __slots__ = ("data", "number", "steps")

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps = 0
        self.data: Any = None


class _Followed:
    """The open sequences of one kind, by what they are recognised by."""

    def __init__(self, kind: str, numbers: Iterator[int]) -> None:
        self.kind = kind
        self._numbers = numbers
        self._open: dict[Hashable, _Open] = {}

    def get(self, key: Hashable) -> _Open | None:
        """The open one of that key."""
        return self._open.get(key)

    def begin(self, key: Hashable) -> _Open:
        """A new one; one that was open is forgotten."""
        self._open.pop(key, None)
        while len(self._open) >= MAX_FOLLOWED:
            del self._open[next(iter(self._open))]
        made = self._open[key] = _Open(next(self._numbers))
        return made

    def step(self, key: Hashable, subject: str, text: str, *, is_end: bool = False) -> Step:
        """Add a step to the open sequence of ``key``, or begin a new sequence with it."""
        sequence = self._open.get(key) or self.begin(key)
        sequence.steps += 1
        if is_end:
            del self._open[key]
        return Step(sequence.number, self.kind, subject, sequence.steps, text, is_end)


class Sequences:
    """Follows the exchanges of one or several nodes."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        self._logins = _Followed("login", numbers)
        self._rebalances = _Followed("rebalance", numbers)
        self._reconciliations = _Followed("reconciliation", numbers)
        self._transactions = _Followed("transaction", numbers)
        self._sessions = _Followed("fetch session", numbers)
        self._refreshes = _Followed("search for a leader", numbers)
        self._searches = _Followed("search for a coordinator", numbers)
        self._by_producer: dict[int, str] = {}
        self._by_api: dict[str, tuple[Callable[[Decoded], Iterator[Step]], ...]] = {
            "SaslHandshake": (self._login,),
            "SaslAuthenticate": (self._login,),
            "JoinGroup": (self._rebalance,),
            "SyncGroup": (self._rebalance,),
            "Heartbeat": (self._rebalance,),
            "LeaveGroup": (self._rebalance,),
            "ConsumerGroupHeartbeat": (self._reconciliation,),
            "InitProducerId": (self._transaction,),
            "AddPartitionsToTxn": (self._transaction,),
            "AddOffsetsToTxn": (self._transaction,),
            "TxnOffsetCommit": (self._transaction,),
            "EndTxn": (self._transaction,),
            "Produce": (self._transaction, self._stale_metadata),
            "WriteTxnMarkers": (self._markers,),
            "Fetch": (self._fetch_session, self._stale_metadata),
            "ListOffsets": (self._stale_metadata,),
            "Metadata": (self._refresh,),
            "FindCoordinator": (self._found_coordinator,),
        }

    def add(self, decoded: Decoded) -> list[Step]:
        """The steps that an exchange is; empty if it belongs to nothing, or cannot be decoded."""
        if decoded.request is None:
            return []
        follow = self._by_api.get(decoded.name, ())
        steps = [step for each in follow for step in each(decoded)]
        if decoded.response is not None and _LOST_COORDINATOR.intersection(decoded.errors):
            steps += self._lost_coordinator(decoded)
        return steps

    # --- logins

    def _login(self, decoded: Decoded) -> Iterator[Step]:
        key = _connection(decoded)
        subject = _connection_text(decoded)
        if decoded.name == "SaslHandshake":
            mechanism = decoded.request.mechanism
            again = self._logins.get(key) is not None
            if not again:
                self._logins.begin(key)
            if decoded.errors:
                yield self._logins.step(key, subject, f"{mechanism} is not offered here", is_end=True)
            else:
                yield self._logins.step(key, subject, f"the client is going to log in with {mechanism}")
        elif decoded.errors:
            yield self._logins.step(key, subject, "the login was refused", is_end=True)
        elif decoded.response is None:
            yield self._logins.step(key, subject, "there was no answer", is_end=True)
        else:
            lifetime = getattr(decoded.response, "session_lifetime_ms", 0)
            until = f"; it has to log in again within {lifetime / 1000:g} s" if lifetime else ""
            yield self._logins.step(key, subject, f"the broker accepts what the client sent{until}")

    # --- groups

    def _rebalance(self, decoded: Decoded) -> Iterator[Step]:
        request, response = decoded.request, decoded.response
        key: Hashable = ("group", request.group_id)
        subject = f"group {request.group_id}"
        step = self._rebalances.step
        if response is None:
            return
        if decoded.name == "Heartbeat":
            if ErrorCode.REBALANCE_IN_PROGRESS in decoded.errors:
                yield step(key, subject, "a member hears that it has to join again")
        elif decoded.name == "LeaveGroup":
            yield step(key, subject, "a member leaves, so the others have to share its partitions")
        elif decoded.name == "JoinGroup":
            if ErrorCode.MEMBER_ID_REQUIRED in decoded.errors:
                yield step(key, subject, "a new member gets its id, and joins with it next")
            elif decoded.errors:
                yield step(key, subject, "a member is not let in")
            else:
                yield self._joined(key, subject, response)
        elif decoded.errors:
            yield step(key, subject, "the assignment is not given: the rebalance begins again or the member is unknown")
        else:
            yield self._synced(key, subject, request)

    def _joined(self, key: Hashable, subject: str, response: Any) -> Step:
        rebalance = self._rebalances.get(key)
        known = None if rebalance is None else rebalance.data
        if rebalance is None or (known is not None and known["generation"] != response.generation_id):
            rebalance, known = self._rebalances.begin(key), None
        if known is None:
            known = rebalance.data = {"generation": response.generation_id, "members": 0, "synced": set()}
        generation = f"generation {response.generation_id}"
        if response.members:
            known["members"] = len(response.members)
            number = len(response.members)
            members = "it is the only one" if number == 1 else f"it is to share the partitions among {number}"
            return self._rebalances.step(key, subject, f"{generation} has begun: this member leads, and {members}")
        return self._rebalances.step(key, subject, f"{generation} has begun: this member waits for its assignment")

    def _synced(self, key: Hashable, subject: str, request: Any) -> Step:
        rebalance = self._rebalances.get(key)
        known = None if rebalance is None else rebalance.data
        role = (
            "the leader hands in who reads what, and gets its own part"
            if request.assignments
            else ("the member gets its assignment")
        )
        if known is None or known["generation"] != request.generation_id:
            return self._rebalances.step(key, subject, role)
        known["synced"].add(request.member_id)
        is_end = bool(known["members"]) and len(known["synced"]) >= known["members"]
        if is_end:
            role += "; all members have theirs, and the rebalance is over"
        return self._rebalances.step(key, subject, role, is_end=is_end)

    def _reconciliation(self, decoded: Decoded) -> Iterator[Step]:
        request, response = decoded.request, decoded.response
        if response is None:
            return
        member = request.member_id or response.member_id or ""
        key = (request.group_id, member)
        subject = f"member {member[:8]} of group {request.group_id}"
        step = self._reconciliations.step
        if decoded.errors:
            if self._reconciliations.get(key) is not None or request.member_epoch == 0:
                yield step(key, subject, "the member is refused, and has to join again", is_end=True)
            return
        if request.member_epoch < 0:
            yield step(key, subject, "the member leaves, and its partitions go to others", is_end=True)
            return
        open_one = self._reconciliations.get(key)
        texts = []
        if request.member_epoch == 0:
            open_one = self._reconciliations.begin(key)
            texts.append("the member joins")
        owned = None if request.topic_partitions is None else _owned(request.topic_partitions)
        if response.assignment is not None:
            if open_one is None:
                open_one = self._reconciliations.begin(key)
            open_one.data = _owned(response.assignment.topic_partitions)
            texts.append(f"it is to read {_partitions_text(open_one.data)} at epoch {response.member_epoch}")
        if open_one is None:
            return  # a heartbeat like any other
        if owned is not None and request.member_epoch != 0:
            texts.insert(0, f"the member says that it reads {_partitions_text(owned)}")
        is_end = owned is not None and open_one.data is not None and owned == open_one.data
        if is_end:
            texts.append("it has what it is to have")
        if texts:
            yield step(key, subject, ", and ".join(texts), is_end=is_end)

    # --- transactions

    def _transaction(self, decoded: Decoded) -> Iterator[Step]:
        request, response = decoded.request, decoded.response
        for transactional_id in decoded.transactional_ids:
            step = self._transactions.step
            subject = f"transactional id {transactional_id}"
            if decoded.errors:
                yield step(transactional_id, subject, f"{decoded.name} is answered {decoded.errors[0].name}")
                continue
            match decoded.name:
                case "InitProducerId":
                    self._transactions.begin(transactional_id)
                    if response is not None:
                        self._know_producer(response.producer_id, transactional_id)
                        text = f"the producer gets id {response.producer_id} and epoch {response.producer_epoch}"
                        yield step(transactional_id, subject, f"{text}: older ones are fenced, an open one is aborted")
                case "EndTxn":
                    self._know_producer(request.producer_id, transactional_id)
                    text = "it is committed" if request.committed else "it is aborted"
                    yield step(transactional_id, subject, f"{text}; markers follow in its partitions", is_end=True)
                case "AddPartitionsToTxn":
                    verifies = any(each.verify_only for each in request.transactions)
                    text = "a broker asks whether it is open" if verifies else "partitions become part of it"
                    yield step(transactional_id, subject, text)
                case "AddOffsetsToTxn":
                    yield step(transactional_id, subject, f"offsets of group {request.group_id} become part of it")
                case "TxnOffsetCommit":
                    text = f"offsets of group {request.group_id} are noted, and count if it is committed"
                    yield step(transactional_id, subject, text)
                case "Produce":
                    yield step(transactional_id, subject, "records are written, and wait for its end")

    def _know_producer(self, producer_id: int, transactional_id: str) -> None:
        while len(self._by_producer) >= MAX_FOLLOWED:
            del self._by_producer[next(iter(self._by_producer))]
        self._by_producer[producer_id] = transactional_id

    def _markers(self, decoded: Decoded) -> Iterator[Step]:
        for marker in decoded.request.markers:
            transactional_id = self._by_producer.get(marker.producer_id)
            subject = (
                f"producer {marker.producer_id}"
                if transactional_id is None
                else (f"transactional id {transactional_id}")
            )
            word = "commit" if marker.transaction_result else "abort"
            key = ("markers", marker.producer_id)
            yield self._transactions.step(key, subject, f"the marker of the {word} is written", is_end=True)

    # --- reading

    def _fetch_session(self, decoded: Decoded) -> Iterator[Step]:
        request, response = decoded.request, decoded.response
        if response is None or (request.session_epoch == -1 and not request.session_id):
            return  # a fetch without a session
        step = self._sessions.step
        key: Hashable = (_connection(decoded), request.session_id)
        subject = _connection_text(decoded)
        if request.session_epoch == -1:
            yield step(key, subject, "the session is closed", is_end=True)
        elif _NEW_SESSION.intersection(decoded.errors):
            yield step(key, subject, "the broker does not have it (so) any more: a full fetch comes next", is_end=True)
        elif request.session_epoch == 0:
            if response.session_id:
                key = (_connection(decoded), response.session_id)
                self._sessions.begin(key)
                yield step(key, subject, "a full fetch names all partitions, and the broker remembers them")
        else:
            changed = sum(len(topic.partitions) for topic in request.topics)
            text = (
                "nothing but what has changed is sent" if not changed else f"{changed} partitions have a new position"
            )
            yield step(key, subject, f"an incremental fetch, epoch {request.session_epoch}: {text}")

    def _stale_metadata(self, decoded: Decoded) -> Iterator[Step]:
        stale = [code.name for code in decoded.errors if code in STALE_METADATA]
        if stale and not decoded.is_internal:
            yield self._refreshes.step(
                _client(decoded), _client_text(decoded), f"{decoded.name} is answered {stale[0]}: what it knows is old"
            )

    def _refresh(self, decoded: Decoded) -> Iterator[Step]:
        key = _client(decoded)
        if self._refreshes.get(key) is not None and decoded.response is not None:
            is_end = not STALE_METADATA.intersection(decoded.errors)
            text = "the client asks for metadata, " + ("and learns the leaders" if is_end else "and has to wait")
            yield self._refreshes.step(key, _client_text(decoded), text, is_end=is_end)

    def _lost_coordinator(self, decoded: Decoded) -> Iterator[Step]:
        if decoded.name != "FindCoordinator" or self._searches.get(_client(decoded)) is None:
            text = f"{decoded.name} is answered {decoded.errors[0].name}: the client has to find the coordinator"
            yield self._searches.step(_client(decoded), _client_text(decoded), text)

    def _found_coordinator(self, decoded: Decoded) -> Iterator[Step]:
        key = _client(decoded)
        if self._searches.get(key) is not None and decoded.response is not None:
            is_end = not decoded.errors
            text = "the client learns where it is" if is_end else "there is none yet, so the client asks again"
            yield self._searches.step(key, _client_text(decoded), text, is_end=is_end)


def _connection(decoded: Decoded) -> tuple[int, str, int]:
    return decoded.exchange.node, decoded.run, decoded.exchange.connection


def _connection_text(decoded: Decoded) -> str:
    peer = "" if decoded.connection is None else f" from {decoded.connection.peer}"
    return f"connection {decoded.exchange.connection}{peer}"


def _client(decoded: Decoded) -> tuple[str, str | None]:
    host = "" if decoded.connection is None else decoded.connection.peer.rpartition(":")[0]
    return host, decoded.client_id


def _client_text(decoded: Decoded) -> str:
    return f"client {decoded.client_id or 'without a name'}"


def _owned(topics: Any) -> frozenset[tuple[str, int]]:
    return frozenset((uuid_to_str(topic.topic_id), index) for topic in topics for index in topic.partitions)


def _partitions_text(owned: frozenset[tuple[str, int]]) -> str:
    number = len(owned)
    return "nothing" if not number else f"{number} partition{'' if number == 1 else 's'}"
