"""``broker.faults``: the hard cases, on purpose, on a broker that runs in this process.

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
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from kbroker.errors import ErrorCode
from kbroker.wire.registry import ApiDescription, api_named

if TYPE_CHECKING:
    from kbroker.testing.broker import RunningBroker
    from kbroker.testing.interception import Interceptor

__all__ = ["Fault", "Faults", "Injection"]

LATEST = -1
"""As the timestamp of a ListOffsets."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One thing that was done, to one request or (with ``api`` empty) to the broker's topics."""

    number: int
    """From 0, in the order in which they were done."""
    action: str
    """"delay", "hold", "error", "drop before", "drop after", "stale latest"; "delete records" and so on."""
    api: str
    api_version: int
    client_id: str | None
    correlation_id: int
    partitions: tuple[tuple[str, int | None], ...]
    """What the request named of what was meant: topics with their partitions, or None where it named none."""
    detail: str

    def __str__(self) -> str:
        where = ", ".join(topic if index is None else f"{topic}-{index}" for topic, index in self.partitions)
        who = f"{self.api} v{self.api_version} #{self.correlation_id} of {self.client_id} " if self.api else ""
        return f"{self.number}: {self.action} {who}{f'({where}) ' if where else ''}{self.detail}".rstrip()


class Matching(TypedDict, total=False):
    """Which requests a fault is for, as :class:`Faults` says."""

    topic: str | None
    partition: int | None
    client_id: str | None
    nth: int | None
    times: int | None
    probability: float
    seed: int


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a fault is for."""

    api: ApiDescription
    topic: str | None = None
    partition: int | None = None
    client_id: re.Pattern[str] | None = None
    nth: int | None = None
    times: int | None = None
    probability: float = 1.0
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

    def __init__(self, faults: Faults, match: Match, action: str, detail: str, seed: int) -> None:
        self.action = action
        self.match = match
        self.detail = detail
        self._faults = faults
        self._rng = Random(seed)
        self._seen = 0
        self._injections: list[Injection] = []
        self._changed = threading.Condition()

    @property
    def injections(self) -> list[Injection]:
        """What this one did, so far."""
        return list(self._injections)

    @property
    def hits(self) -> int:
        """How many requests it has acted on."""
        return len(self._injections)

    def wait(self, hits: int = 1, timeout: float = 30.0) -> None:
        """Until it has acted on that many requests; TimeoutError after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._injections) >= hits, timeout):
                raise TimeoutError(f"{self} acted on {self.hits} requests in {timeout:g} s, not {hits}")

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
        return f"{self.action} {self.match.api.name}{f' {self.detail}' if self.detail else ''}"

    # In the broker's thread.

    def fires(self) -> bool:
        """Whether this request, which it is for, is one of those it is to act on. Called once for each."""
        match = self.match
        self._seen += 1
        if match.nth is not None and self._seen != match.nth:
            return False
        if match.times is not None and len(self._injections) >= match.times:
            return False
        return match.probability >= 1.0 or self._rng.random() < match.probability

    def note(self, injection: Injection) -> None:
        """Remember what was done."""
        with self._changed:
            self._injections.append(injection)
            self._changed.notify_all()


class Faults:
    """The faults of one broker. Get it from :attr:`RunningBroker.faults`.

    Arguments that all faults of requests share:

    - ``api``: Kafka's name ("Fetch"), or its key.
    - ``topic``, ``partition``: only requests that name it. A Fetch names what is in its session too.
    - ``client_id``: a regular expression that is searched in the request's client id.
    - ``nth``: only the nth of these requests that gets so far (from 1). ``times``: at most so many.
    - ``probability``, ``seed``: each of them by chance.
    """

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._interceptor: Interceptor | None = None
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.record: list[Injection] = []
        """All that was done, oldest first."""

    @property
    def active(self) -> list[Fault]:
        """The faults of requests that are not undone, oldest first."""
        return list(self._faults)

    def forget(self) -> None:
        """The node is gone, and its faults with it; another takes its place."""
        self._faults.clear()
        self._interceptor = None

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

    def delay(self, api: str | int, seconds: float, **match: Unpack[Matching]) -> Fault:
        """Serve these requests that much later. Their connection waits with them, as Kafka's do."""
        if seconds < 0:
            raise ValueError("a delay cannot be negative")
        return self._add(api, "delay", f"{seconds:g} s", match, seconds=seconds)

    def hold(self, api: str | int, **match: Unpack[Matching]) -> Fault:
        """Serve these requests only when the fault is undone: a delay that depends on no clock."""
        return self._add(api, "hold", "", match)

    def error(self, api: str | int, code: ErrorCode | str | int, **match: Unpack[Matching]) -> Fault:
        """Answer with an error, and do nothing of what was asked.

        The error is where the API has it: with each partition, group or resource, or at the top. With a ``topic`` or
        ``partition``, the rest of the request is served. ValueError for AlterReplicaLogDirs, which cannot be made to.
        """
        found = ErrorCode[code] if isinstance(code, str) else ErrorCode(code)
        return self._add(api, "error", found.name, match, code=found)

    def drop(self, api: str | int, *, when: Literal["before", "after"] = "before", **match: Unpack[Matching]) -> Fault:
        """Close the connection instead of serving the request, or after it, instead of answering."""
        if when not in ("before", "after"):
            raise ValueError(f'when is "before" or "after" the effect, not {when!r}')
        return self._add(api, f"drop {when}", "", match)

    def stale_latest(
        self,
        topic: str,
        partition: int | None = None,
        *,
        behind: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
        nth: int | None = None,
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

    # --- records and topics

    def delete_records(
        self, topic: str, partition: int | None = None, *, before: int | None = None
    ) -> dict[int, int]:
        """Move the log start of a partition (of all) up to ``before`` (the end), as DeleteRecords does.

        Answers with the log start offset of each. A compacted topic is no exception here.
        """
        return self._act("delete_records", "delete records", topic, partition, before=before)

    def expire(self, topic: str, partition: int | None = None) -> dict[int, int]:
        """Have retention take all records that are there now, whatever their age. The log start of each."""
        return self._act("expire", "expire", topic, partition)

    def apply_retention(self, topic: str, partition: int | None = None) -> dict[int, int]:
        """Do now what the topic's own ``retention.ms`` and ``retention.bytes`` ask for; the log start of each."""
        return self._act("apply_retention", "retention", topic, partition)

    def offset_gap(self, topic: str, partition: int | None = None, *, size: int = 1) -> dict[int, int]:
        """Append ``size`` offsets that no consumer gets a record for, as a topic that is written in transactions has.

        They are control records. Answers with the end of each log.
        """
        if size < 1:
            raise ValueError("a gap has at least one offset")
        return self._act("offset_gap", "offset gap", topic, partition, size=size)

    def compact(self, topic: str, partition: int | None = None) -> dict[int, int]:
        """Keep only the last record of each key, whatever the topic's policy; the number of bytes left in each."""
        return self._act("compact", "compact", topic, partition)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._act("delete_topic", "delete topic", topic, None)

    def recreate_topic(self, topic: str, *, partitions: int | None = None) -> None:
        """Delete a topic and make it again, empty, under another topic id, with the same configs."""
        self._act("recreate_topic", "recreate topic", topic, None, partitions=partitions)

    # --- inside

    def _add(
        self,
        api: str | int,
        action: str,
        detail: str,
        match: Mapping[str, Any],
        timestamp: int | None = None,
        **parameters: Any,
    ) -> Fault:
        from kbroker.testing.interception import Interceptor, action_of

        chosen, seed = _match(api, match, timestamp)
        fault = Fault(self, chosen, action, detail, seed)
        act = action_of(fault, **parameters)
        self._faults.append(fault)

        def add(node: Any) -> None:
            if self._interceptor is None:
                self._interceptor = Interceptor(node, self._note)
            self._interceptor.add(fault, act)

        try:
            self._broker.in_broker(add)
        except BaseException:
            self._faults.remove(fault)
            raise
        return fault

    def _remove(self, fault: Fault) -> None:
        if fault not in self._faults:
            return
        self._faults.remove(fault)
        interceptor = self._interceptor
        if interceptor is not None and self._broker.is_running:
            self._broker.in_broker(lambda node: interceptor.remove(fault))

    def _act(self, name: str, action: str, topic: str, partition: int | None, **parameters: Any) -> dict[int, int]:
        from kbroker.testing import broker_actions

        function = getattr(broker_actions, name)
        done: dict[int, int] = self._broker.in_broker_async(
            lambda node: function(node, topic, partition, **parameters)
        )
        told = ", ".join(f"{key}={value}" for key, value in parameters.items() if value is not None)
        self._note(action, None, None, tuple((topic, index) for index in done) or ((topic, None),), told)
        return done

    def _note(
        self, action: str, api: str | None, header: Any, partitions: tuple[tuple[str, int | None], ...], detail: str
    ) -> Injection:
        with self._lock:
            injection = Injection(
                len(self.record),
                action,
                api or "",
                header.api_version if header is not None else -1,
                header.client_id if header is not None else None,
                header.correlation_id if header is not None else -1,
                partitions,
                detail,
            )
            self.record.append(injection)
        return injection


def _match(api: str | int, arguments: Mapping[str, Any], timestamp: int | None) -> tuple[Match, int]:
    from kbroker.wire.registry import API_KEYS

    names = Matching.__annotations__
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        raise TypeError(f"a fault has no {', '.join(unknown)}; it has {', '.join(sorted(names))}")
    try:
        description = api_named(api) if isinstance(api, str) else API_KEYS[api]
    except KeyError:
        raise ValueError(f"Kafka has no API {api!r}") from None
    given = dict(arguments)
    seed = given.pop("seed", 0)
    client_id = given.pop("client_id", None)
    pattern = None if client_id is None else re.compile(client_id)
    match = Match(description, client_id=pattern, timestamp=timestamp, **given)
    if not 0.0 <= match.probability <= 1.0:
        raise ValueError("a probability is between 0 and 1")
    return match, seed


