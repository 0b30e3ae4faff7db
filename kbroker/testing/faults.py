"""``broker.faults`` and ``cluster.faults``: the hard cases, on purpose.

::

    with running_broker() as broker, broker.faults as faults:
        faults.drop("Produce", when="after", times=1)       # the batch is stored, the producer does not hear of it
        faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders", probability=0.2, seed=7)
        faults.delay("ListOffsets", 0.5)
        faults.delete_records("orders", 0, before=100)
        ...
        for injection in faults.record:
            print(injection)

What acts on requests ends with the ``with`` block (of all faults, or of one: each call returns a :class:`Fault`). What
acts on records and topics cannot be undone. Chance is drawn from the seed, in the order of the requests. All of it may
be called from any thread but the broker's, and one that runs Trio itself.

What a fault is for, how often it acted and what it did is kept here, once, also if several nodes act on it. Those only
see the requests and do what is to be done (``interception.py``); a :class:`Host` says where they are.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Literal, Protocol, TypeAlias, TypedDict, Unpack

from kbroker.errors import ErrorCode
from kbroker.testing.intercepted import INTERCEPT, InterceptedRequests
from kbroker.testing.parameters import (
    Api,
    Chance,
    Count,
    Error,
    Index,
    Offset,
    Parameter,
    Patience,
    Regex,
    Seconds,
    Times,
    Topic,
    expression,
    value_of,
)
from kbroker.wire.registry import API_KEYS, ApiDescription, api_named

__all__ = ["Fault", "Faults", "Host", "Injection"]

LATEST = -1
"""As the timestamp of a ListOffsets."""

FOLLOWERS_APIS = ("Fetch", "ListOffsets", "OffsetForLeaderEpoch")
"""The APIs that followers send to leaders; consumers send them, too."""


@dataclass(frozen=True, slots=True)
class Injection:
    """An injected fault: an action on a request, or (with ``api`` empty) on the broker's topics."""

    number: int
    """From 0, in the order in which they were done."""
    action: str
    """"delay", "hold", "error", "drop before", "drop after", "stale latest", "intercept"; "expire" and so on."""
    api: str
    api_version: int
    client_id: str | None
    correlation_id: int
    partitions: tuple[tuple[str, int | None], ...]
    """The topics and partitions of the fault that the request named; the partition is None where it named none."""
    detail: str
    node: int | None = None
    """The node that received the request, in a cluster."""

    def __str__(self) -> str:
        where = ", ".join(topic if index is None else f"{topic}-{index}" for topic, index in self.partitions)
        who = f"{self.api} v{self.api_version} #{self.correlation_id} of {self.client_id} " if self.api else ""
        who += f"at node {self.node} " if self.node is not None else ""
        return f"{self.number}: {self.action} {who}{f'({where}) ' if where else ''}{self.detail}".rstrip()


class Matching(TypedDict, total=False):
    """The requests that a fault is for, as :class:`Faults` says."""

    topic: Topic | None
    partition: Index | None
    client_id: Regex | None
    nth: Times | None
    times: Times | None
    probability: Chance
    seed: int
    followers: bool


class Parameters(TypedDict, total=False):
    """Of an action on requests; each has those that it needs."""

    seconds: float
    code: int
    behind: int


Arguments: TypeAlias = "Mapping[str, int | str | None]"
"""Of an action on records and topics, by name."""


@dataclass(frozen=True, slots=True)
class Match:
    """The requests that a fault is for."""

    api: ApiDescription | None
    """None: of all that clients ask."""
    topic: str | None = None
    partition: int | None = None
    client_id: re.Pattern[str] | None = None
    nth: int | None = None
    times: int | None = None
    probability: float = 1.0
    followers: bool = False
    """For requests of followers, which are otherwise left alone."""
    timestamp: int | None = None
    """Of a ListOffsets: only partitions that it asks this of."""

    @property
    def by_partition(self) -> bool:
        """Whether it is for some partitions only."""
        return self.topic is not None or self.partition is not None

    def chosen(self, topic: str, partition: int | None) -> bool:
        """Whether it is for this one; a request about a whole topic is for all of its partitions."""
        if not self.by_partition:
            return True
        if self.topic is not None and topic != self.topic:
            return False
        return self.partition is None or partition is None or partition == self.partition


class Fault:
    """Something that happens to requests until it is undone: at the end of its ``with`` block, or of all faults'."""

    def __init__(
        self, faults: Faults, match: Match, action: str, detail: str, seed: int, parameters: Parameters
    ) -> None:
        self.number = faults._next_number()
        """Among the faults of this broker or cluster."""
        self.node = faults.node
        """The node at which it acts; None: at all."""
        self.action = action
        self.match = match
        self.detail = detail
        self.parameters = parameters
        self._faults = faults
        self._rng = Random(seed)
        self._seen = 0
        self._fired = 0
        self._injections: list[Injection] = []
        self.intercepted = InterceptedRequests(parameters.get("seconds", 0.0))
        """The requests that wait, of a fault of :meth:`Faults.intercept`."""
        self._changed = threading.Condition()

    @property
    def injections(self) -> list[Injection]:
        """The injections of this fault, so far."""
        return list(self._injections)

    @property
    def hits(self) -> int:
        """The number of requests that it has acted on."""
        return len(self._injections)

    def wait(self, hits: Times = 1, timeout: Patience = 120.0) -> None:
        """Until it has acted on that many requests; TimeoutError after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._injections) >= hits, timeout):
                raise TimeoutError(f"{self} acted on {self.hits} requests in {timeout:g} s, not {hits}")

    def is_of(self, faults: Faults) -> bool:
        """Whether it is one of these themselves, and not of one node of their cluster."""
        return self._faults is faults

    def undo(self) -> None:
        """Let requests pass again. What is delayed or held goes on at once. Does nothing the second time."""
        self._faults._remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()

    def __str__(self) -> str:
        api = "all" if self.match.api is None else self.match.api.name
        return f"{self.action} {api}{f' {self.detail}' if self.detail else ''}"

    # Of those who see the requests.

    def fires(self) -> bool:
        """Whether this request, which it is for, is one of those it is to act on. Called once for each."""
        match = self.match
        if self.action == INTERCEPT and not self.intercepted.is_kept:
            return False
        with self._changed:
            self._seen += 1
            if match.nth is not None and self._seen != match.nth:
                return False
            if match.times is not None and self._fired >= match.times:
                return False
            if match.probability < 1.0 and self._rng.random() >= match.probability:
                return False
            self._fired += 1
            return True

    def note(
        self,
        api: str,
        api_version: int,
        client_id: str | None,
        correlation_id: int,
        partitions: tuple[tuple[str, int | None], ...],
        detail: str,
        node: int | None,
    ) -> None:
        """Remember what was done to a request."""
        injection = self._faults._note(
            self.action, partitions, detail, api, api_version, client_id, correlation_id, node
        )
        with self._changed:
            self._injections.append(injection)
            self._changed.notify_all()


class Host(Protocol):
    """Where faults act: a broker of this process, or nodes of a cluster."""

    def add(self, fault: Fault) -> None:
        """Have it act from the next request on. ValueError for an API that clients are not served there."""

    def remove(self, fault: Fault) -> None:
        """Have it act no more; what waits because of it goes on."""

    def act(self, name: str, topic: str, partition: int | None, arguments: Arguments) -> dict[int, int]:
        """Do what a function of ``broker_actions`` does, where the partitions (the controller) are."""


class Faults:
    """The faults of a broker (:attr:`RunningBroker.faults`), of a cluster or of one of its nodes.

    Those of a cluster's nodes are in the cluster's ``active`` and ``record`` too. They stay when a broker or node is
    started again, before it serves its first request, until they are undone.

    Arguments that all faults of requests share:

    - ``api``: Kafka's name ("Fetch"), or its key.
    - ``topic``, ``partition``: only requests that name it. A Fetch names what is in its session too.
    - ``client_id``: a regular expression that is searched in the request's client id.
    - ``nth``: only the nth of these requests that gets so far (from 1). ``times``: at most so many.
    - ``probability``, ``seed``: each of them by chance.
    - ``followers``: the requests of followers to their leaders, which are otherwise left alone.
    """

    def __init__(self, host: Host, within: Faults | None = None, node: int | None = None) -> None:
        self._host = host
        self.node = node
        """The node at which they act; None: at all."""
        self._whole = within if within is not None else self
        self._faults: list[Fault] = []
        self._lock: threading.Lock = threading.Lock() if within is None else within._lock
        self._numbers = itertools.count()
        self.record: list[Injection] = [] if within is None else within.record
        """All that was done, oldest first."""
        self.on_injection: Callable[[Injection], object] | None = None
        """Called with each, on the thread that noted it, while the request waits; of a cluster, for all its nodes."""

    @property
    def active(self) -> list[Fault]:
        """The faults of requests that are not undone, oldest first."""
        return list(self._faults)

    def __enter__(self) -> Faults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Undo every fault of requests. The record stays."""
        for fault in list(self._faults):
            fault.undo()

    # --- requests

    def delay(self, api: Api | int, seconds: Seconds, **match: Unpack[Matching]) -> Fault:
        """Serve these requests that much later. Their connection waits with them, as Kafka's do."""
        if seconds < 0:
            raise ValueError("a delay cannot be negative")
        return self._add(api, "delay", f"{seconds:g} s", match, seconds=seconds)

    def hold(self, api: Api | int, **match: Unpack[Matching]) -> Fault:
        """Serve these requests only when the fault is undone: a delay that depends on no clock."""
        return self._add(api, "hold", "", match)

    def error(self, api: Api | int, code: Error | int, **match: Unpack[Matching]) -> Fault:
        """Answer with an error, and do nothing of what was asked.

        The error is where the API has it: with each partition, group or resource, or at the top. With a ``topic`` or
        ``partition``, the rest of the request is served.
        """
        if isinstance(code, str):
            code = ErrorCode[value_of(Parameter("code", Error, needed=True), code)]
        found = ErrorCode(code)
        return self._add(api, "error", found.name, match, code=found)

    def drop(self, api: Api | int, *, when: Literal["before", "after"] = "before", **match: Unpack[Matching]) -> Fault:
        """Close the connection instead of serving the request, or after it, instead of answering."""
        if when not in ("before", "after"):
            raise ValueError(f'when is "before" or "after" the effect, not {when!r}')
        return self._add(api, f"drop {when}", "", match)

    def stale_latest(
        self,
        topic: Topic,
        partition: Index | None = None,
        *,
        behind: Times = 1,
        times: Times | None = 1,
        client_id: Regex | None = None,
        nth: Times | None = None,
    ) -> Fault:
        """Answer ListOffsets with a "latest" offset that is ``behind`` too low (never below the earliest), once."""
        return self._add(
            "ListOffsets",
            "stale latest",
            f"{behind} behind",
            {"topic": topic, "partition": partition, "times": times, "client_id": client_id, "nth": nth},
            timestamp=LATEST,
            behind=behind,
        )

    def intercept(self, api: Api | int | None = None, *, patience: Patience = 30.0, **match: Unpack[Matching]) -> Fault:
        """Have these requests (without an API: all) wait until the test decides about each: see ``intercepted``.

        Who is not asked for them for ``patience`` seconds has gone away: what waits so long is passed on, and what
        comes then does not wait.
        """
        return self._add(api, INTERCEPT, "", match, seconds=patience)

    # --- records and topics

    def delete_records(
        self, topic: Topic, partition: Index | None = None, *, before: Offset | None = None
    ) -> dict[int, int]:
        """Move the log start of a partition (of all) up to ``before`` (the end), as DeleteRecords does.

        Answers with the log start offset of each. A compacted topic is no exception here.
        """
        return self._act("delete_records", "delete records", topic, partition, before=before)

    def expire(self, topic: Topic, partition: Index | None = None) -> dict[int, int]:
        """Have retention take all records that are there now, whatever their age. The log start of each."""
        return self._act("expire", "expire", topic, partition)

    def apply_retention(self, topic: Topic, partition: Index | None = None) -> dict[int, int]:
        """Do now what the topic's own ``retention.ms`` and ``retention.bytes`` ask for; the log start of each."""
        return self._act("apply_retention", "retention", topic, partition)

    def offset_gap(self, topic: Topic, partition: Index | None = None, *, size: Count = 1) -> dict[int, int]:
        """Append ``size`` offsets that no consumer gets a record for, as a topic that is written in transactions has.

        They are control records. Answers with the end of each log.
        """
        if size < 1:
            raise ValueError("a gap has at least one offset")
        return self._act("offset_gap", "offset gap", topic, partition, size=size)

    def compact(self, topic: Topic, partition: Index | None = None) -> dict[int, int]:
        """Keep only the last record of each key of a compacted topic, now; the number of bytes left in each."""
        return self._act("compact", "compact", topic, partition)

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic."""
        self._act("delete_topic", "delete topic", topic, None)

    def recreate_topic(self, topic: Topic, *, partitions: Count | None = None) -> None:
        """Delete a topic and make it again, empty, under another topic id, with the same configs and replicas."""
        self._act("recreate_topic", "recreate topic", topic, None, count=partitions)

    # --- inside

    def _add(
        self,
        api: str | int | None,
        action: str,
        detail: str,
        match: Matching,
        timestamp: int | None = None,
        **parameters: Unpack[Parameters],
    ) -> Fault:
        chosen, seed = _match(api, match, timestamp)
        fault = Fault(self, chosen, action, detail, seed, parameters)
        for faults in {self, self._whole}:
            faults._faults.append(fault)
        try:
            self._host.add(fault)
        except BaseException:
            self._forget(fault)
            raise
        return fault

    def _remove(self, fault: Fault) -> None:
        if self._forget(fault):
            fault.intercepted.end()
            self._host.remove(fault)

    def _forget(self, fault: Fault) -> bool:
        found = fault in self._faults
        if found:
            for faults in {self, self._whole}:
                faults._faults.remove(fault)
        return found

    def _next_number(self) -> int:
        return next(self._whole._numbers)

    def _act(
        self, name: str, action: str, topic: str, partition: int | None, **arguments: int | None
    ) -> dict[int, int]:
        done = self._host.act(name, topic, partition, arguments)
        told = ", ".join(f"{key}={value}" for key, value in arguments.items() if value is not None)
        self._note(action, tuple((topic, index) for index in sorted(done)) or ((topic, None),), told)
        return done

    def _note(
        self,
        action: str,
        partitions: tuple[tuple[str, int | None], ...],
        detail: str,
        api: str = "",
        api_version: int = -1,
        client_id: str | None = None,
        correlation_id: int = -1,
        node: int | None = None,
    ) -> Injection:
        with self._lock:
            injection = Injection(
                len(self.record), action, api, api_version, client_id, correlation_id, partitions, detail, node
            )
            self.record.append(injection)
        if self._whole.on_injection is not None:
            self._whole.on_injection(injection)
        return injection


def _match(api: str | int | None, given: Matching, timestamp: int | None) -> tuple[Match, int]:
    names = Matching.__annotations__
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise TypeError(f"a fault has no {', '.join(unknown)}; it has {', '.join(sorted(names))}")
    try:
        description = api_named(api) if isinstance(api, str) else None if api is None else API_KEYS[api]
    except KeyError:
        raise ValueError(f"Kafka has no API {api!r}") from None
    client_id = given.get("client_id")
    match = Match(
        description,
        given.get("topic"),
        given.get("partition"),
        None if client_id is None else expression("client_id", client_id),
        given.get("nth"),
        given.get("times"),
        given.get("probability", 1.0),
        given.get("followers", False),
        timestamp,
    )
    if match.followers and (description is None or description.name not in FOLLOWERS_APIS):
        wrong = "no other" if description is None else f"no {description.name}"
        raise ValueError(f"followers send {', '.join(FOLLOWERS_APIS)}, and {wrong}")
    if not 0.0 <= match.probability <= 1.0:
        raise ValueError("a probability is between 0 and 1")
    return match, given.get("seed", 0)
