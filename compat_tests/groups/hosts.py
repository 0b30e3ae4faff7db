"""Members of consumer groups in processes of their own, and what they told of themselves."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from compat_tests import clients
from compat_tests.apache_kafka import SERVER_VERSION
from compat_tests.line_process import LineProcess, command_of
from tests.patience import LONG

Position = tuple[str, int]
"""Topic and partition."""

_FOLDER = Path(__file__).parent.parent


@dataclass(frozen=True)
class Kind:
    """A client and the group protocol it is used with; `lacks` says in whose words what it cannot do."""

    name: str
    client: str
    protocol: str
    lacks: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        """Whether its members are of KIP-848's protocol."""
        return self.protocol == "consumer"


_KAFKAJS = "kafkajs 2.2.4"
_SERVER_SIDE = "with group.protocol=consumer the broker assigns"

KINDS = {
    kind.name: kind
    for kind in (
        Kind("kafka-python", "kafka-python", "classic"),
        Kind("confluent-kafka", "confluent-kafka", "classic"),
        Kind("confluent-kafka-consumer", "confluent-kafka", "consumer", {"assignors": f"librdkafka: {_SERVER_SIDE}"}),
        Kind("aiokafka", "aiokafka", "classic", {"cooperative": "aiokafka has eager assignors only"}),
        Kind(
            "kafkajs",
            "kafkajs",
            "classic",
            {
                "cooperative": f"{_KAFKAJS} has an eager assignor only (RoundRobinAssigner)",
                "static": f"{_KAFKAJS} has no group instance ids",
                "regex_later": f"{_KAFKAJS} resolves a regular expression once, when it subscribes",
                "assignors": f"{_KAFKAJS} has one assignor",
            },
        ),
        Kind("java", "java", "classic"),
        Kind("java-consumer", "java", "consumer", {"assignors": f"Kafka's consumer: {_SERVER_SIDE}"}),
    )
}


def description(client: str) -> str:
    """The client with its version."""
    return f"{client} {SERVER_VERSION if client == 'java' else '2.2.4' if client == 'kafkajs' else version(client)}"


class MemberError(Exception):
    """A command to a member was refused; the text is the client's."""


class Unanswered(MemberError):
    """A command was not answered in time: its client may never answer any more."""


_changed = threading.Condition()
"""One condition for all members: a test waits for several of them, which may live in several processes."""


class Host(LineProcess):
    """A process with members of one client."""

    def __init__(self, client: str) -> None:
        java, script = _FOLDER / "java" / "GroupMember.java", _FOLDER / "kafkajs" / "group_member.js"
        super().__init__(client, *command_of(client, java, script, "compat_tests.groups.member"))
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._members: dict[str, Member] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                self._said.append(line)
                continue
            told = json.loads(line)
            if "id" in told:
                self._waiting.pop(told["id"]).put(told)
            else:
                with _changed:
                    self._members[told["member"]].on_event(told)
                    _changed.notify_all()
        for waiting in list(self._waiting.values()):
            waiting.put({"error": f"the {self.client} host ended: {''.join(self._said[-20:])}"})

    def call(self, op: str, timeout: float = LONG, **arguments: Any) -> Any:
        """Run one command and wait for its result. Raises MemberError."""
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        number = next(self._numbers)
        self._waiting[number] = answer
        try:
            self._send({"id": number, "op": op, **arguments})
            reply = answer.get(timeout=timeout)
        except queue.Empty:
            raise Unanswered(f"{op}: no answer within {timeout} s; {self.said}") from None
        except BrokenPipeError:
            raise MemberError(f"{op}: the host ended; {self.said}") from None
        if "error" in reply:
            raise MemberError(f"{op}: {reply['error']}")
        return reply.get("result")

    def join(self, bootstrap: str, group: str, kind: Kind, name: str, **options: Any) -> Member:
        """Start a member of the group."""
        member = Member(self, name, str(options.get("instance") or name))
        self._members[name] = member
        self.call(
            "join",
            member=name,
            bootstrap=bootstrap,
            group=group,
            protocol=kind.protocol,
            **{"topics": [], "session_timeout_ms": 60_000, **options},
        )
        return member

    def kill(self) -> float:
        """SIGKILL, as a crash is: members neither commit nor leave. Returns when, on the monotonic clock."""
        self._process.kill()
        self._process.wait()
        ended = time.monotonic()
        with _changed:
            for member in self._members.values():
                if member.ended_at is None:
                    member.ended_at = ended
        return ended

    def freeze(self) -> None:
        """Let no thread of the process run until `thaw`."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """End `freeze`."""
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process; its members are not asked to leave."""
        with contextlib.suppress(ProcessLookupError):
            self.thaw()
        super().close()


class Member:
    """A member as its reports show it: its present and past partitions, and the records that it read."""

    def __init__(self, host: Host, name: str, instance: str) -> None:
        self.host = host
        self.name = name
        self.instance = instance
        """Its identity for the coordinator, which a static member keeps over a restart."""
        self.owned: set[Position] = set()
        self.seen: list[tuple[str, int, int]] = []
        """(topic, partition, offset) in the order of reading."""
        self.astray: list[tuple[str, int, int]] = []
        """Records of partitions that it did not own when it was given them."""
        self.errors: list[str] = []
        self.assigned: list[set[Position]] = []
        self.revoked: list[set[Position]] = []
        self.generations: dict[int, set[Position]] = {}
        """Generation, if the client exposes it -> the partitions owned then."""
        self.holdings: list[tuple[float, float, Position, bool]] = []
        """(from, to, partition, whether it was lost): while the member held the partition."""
        self.ended_at: float | None = None
        self._since: dict[Position, float] = {}

    def on_event(self, told: Mapping[str, Any]) -> None:
        """Take in one line of the host."""
        event = told["event"]
        if event == "error":
            self.errors.append(told["text"])
        elif event == "records":
            self.seen += [(topic, partition, offset) for topic, partition, offset in told["records"]]
            self.astray += [(topic, partition, offset) for topic, partition, offset in told["astray"]]
        else:
            partitions = {(topic, partition) for topic, partition in told["partitions"]}
            if event == "assigned":
                self.owned |= partitions
                self.assigned.append(partitions)
                self._since |= dict.fromkeys(partitions, told["at"])
                if told.get("generation") is not None:
                    self.generations[told["generation"]] = set(self.owned)
            elif partitions:
                self.owned -= partitions
                self.revoked.append(partitions)
                for each in sorted(partitions):
                    if each in self._since:
                        since = self._since.pop(each)
                        self.holdings.append((since, told["at"], each, event == "lost"))

    def held(self) -> list[tuple[float, float, Position, bool]]:
        """All holdings, those that go on included."""
        until = time.monotonic() if self.ended_at is None else self.ended_at
        return [*self.holdings, *((since, until, each, False) for each, since in self._since.items())]

    def partitions(self) -> set[int]:
        """The numbers of the partitions it owns."""
        return {partition for _, partition in self.owned}

    def call(self, op: str, **arguments: Any) -> Any:
        """Let the member carry out a command of its client. Raises MemberError."""
        return self.host.call(op, member=self.name, **arguments)

    def close(self) -> None:
        """Leave the group as the client does when it is closed."""
        if self.ended_at is None:
            self.ended_at = time.monotonic()
            if self.host.is_alive:
                self.call("close")

    def __repr__(self) -> str:
        owned = sorted(self.owned)
        return f"<{self.name} owns {owned}, read {len(self.seen)}, errors {self.errors[-3:]}>"


def await_that(condition: Callable[[], bool], what: str, members: Sequence[Member], timeout: float = LONG) -> None:
    """Wait until what the members tell makes the condition true; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with _changed:
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                said = "".join({member.host.said for member in members})
                raise AssertionError(f"not within {timeout} s: {what}; {list(members)}\n{said[-3000:]}")
            _changed.wait(left)


def never_two_owners(members: Sequence[Member]) -> None:
    """No partition was held by two members at a time, or by two in one generation; nobody read what was not its own."""
    held = sorted(
        (
            (partition, since, until, member.name, lost)
            for member in members
            for since, until, partition, lost in member.held()
        ),
        key=lambda each: (each[0], each[1]),
    )
    for (first, _, until, holder, lost), (second, since, _, other, _) in itertools.pairwise(held):
        # Who is told late that it has lost a partition has not owned it since the coordinator took it.
        if first == second and holder != other and not lost:
            assert since >= until, f"{first}: {holder} held it for {until - since:.3f} s when {other} had it already"
    for generation in sorted(set(itertools.chain.from_iterable(member.generations for member in members))):
        owners: dict[Position, set[str]] = {}
        for member in members:
            for each in member.generations.get(generation, ()):
                owners.setdefault(each, set()).add(member.instance)
        twice = {each: names for each, names in owners.items() if len(names) > 1}
        assert not twice, f"two owners in generation {generation}: {twice}"
    assert not [(member.name, member.astray) for member in members if member.astray]


def read_counts(members: Sequence[Member]) -> Counter[tuple[str, int, int]]:
    """Count how often the members have read each record, all of them together."""
    return Counter(record for member in members for record in member.seen)


@contextlib.contextmanager
def hosts() -> Iterator[Callable[..., Host]]:
    """A function that gives the host of a client, the same one each time, or a `fresh` one that may be killed."""
    shared: dict[str, Host] = {}
    made: list[Host] = []

    def host(client: str, fresh: bool = False) -> Host:
        found = None if fresh else shared.get(client)
        if found is None or not found.is_alive:
            found = Host(client)
            made.append(found)
            if not fresh:
                shared[client] = found
        return found

    try:
        yield host
    finally:
        for each in made:
            each.close()


def unavailable(kind: Kind) -> str | None:
    """The reason why this kind of member cannot be used on this machine, or None."""
    return clients.unavailable(kind.client)
