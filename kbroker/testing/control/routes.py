"""The verbs of the control: method, path, and the function of `kbroker.testing` that does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from kbroker.testing.faults import Fault, Faults, Injection
from kbroker.testing.intercepted import DecisionAction, Intercepted
from kbroker.testing.parameters import Index, Offset, Parameter, Patience, Times, parameters_of, result_of
from kbroker.testing.script import fault_numbered
from kbroker.testing.seen import ClockSeen, NodeSeen, NotInTime
from kbroker.testing.verbs import WAIT_SECONDS, Verbs
from kbroker.version import __version__

T = TypeVar("T")

_MOST_INJECTIONS: Final = 1000


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is to be told but that it is done."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Partition -> its log start or end offset, or (compact) its bytes."""

    partitions: dict[int, int]


@dataclass(frozen=True, slots=True)
class FaultSeen:
    """A fault of requests: its number, by which it is undone, what it does to which, and how often it has acted."""

    number: int
    action: str
    api: str | None
    detail: str
    hits: int
    topic: str | None
    partition: int | None
    client_id: str | None
    nth: int | None
    times: int | None
    probability: float
    followers: bool
    node: int | None

    @classmethod
    def of(cls, fault: Fault) -> FaultSeen:
        """Returns a fault as it is now."""
        match = fault.match
        who = None if match.client_id is None else match.client_id.pattern
        which = (match.topic, match.partition, who, match.nth, match.times, match.probability, match.followers)
        api = None if match.api is None else match.api.name
        return cls(fault.number, fault.action, api, fault.detail, fault.hits, *which, fault.node)


@dataclass(frozen=True, slots=True)
class FaultsSeen:
    """The faults that are not undone, oldest first."""

    faults: list[FaultSeen]


@dataclass(frozen=True, slots=True)
class PartitionNamed:
    """A partition that a request named; null where it named the topic alone."""

    topic: str
    partition: int | None


@dataclass(frozen=True, slots=True)
class InjectionSeen:
    """An action on a request, or (with an empty api) on records and topics."""

    number: int
    action: str
    api: str
    api_version: int
    client_id: str | None
    correlation_id: int
    partitions: list[PartitionNamed]
    detail: str
    node: int | None

    @classmethod
    def of(cls, done: Injection) -> InjectionSeen:
        """Returns what an injection has done."""
        named = [PartitionNamed(*each) for each in done.partitions]
        request = (done.api, done.api_version, done.client_id, done.correlation_id)
        return cls(done.number, done.action, *request, named, done.detail, done.node)


@dataclass(frozen=True, slots=True)
class InjectionsSeen:
    """Injections, oldest first, and the number from which on the next are to be asked for."""

    injections: list[InjectionSeen]
    next: int


@dataclass(frozen=True, slots=True)
class Status:
    """Where clients connect, and what is there."""

    software: str
    bootstrap_servers: str
    nodes: list[NodeSeen]
    faults: list[FaultSeen]
    registry_url: str | None
    """Where its schema registry is; null without one."""


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """The nodes, whether they run or not."""

    nodes: list[NodeSeen]


def status(target: Verbs) -> Status:
    """Tell where clients connect, which nodes there are, and which faults."""
    registry_url = None if target.registry is None else target.registry.url
    faults = list_faults(target).faults
    return Status(f"kbroker {__version__}", target.bootstrap_servers, target.nodes_seen, faults, registry_url)


def list_faults(target: Verbs) -> FaultsSeen:
    """List the faults that are not undone."""
    return FaultsSeen([FaultSeen.of(fault) for fault in target.faults.active])


def clear_faults(target: Verbs) -> Done:
    """Undo every fault of requests; the record stays."""
    target.faults.clear()
    return Done()


def undo_fault(target: Verbs, number: Index) -> FaultSeen:
    """Undo a fault. What is delayed or held goes on at once."""
    fault = fault_numbered(target.faults, number)
    fault.undo()
    return FaultSeen.of(fault)


def wait_for_fault(target: Verbs, number: Index, hits: Times = 1, timeout: Patience = WAIT_SECONDS) -> FaultSeen:
    """Wait until a fault has acted on so many requests."""
    fault = fault_numbered(target.faults, number)
    try:
        fault.wait(hits, timeout)
    except TimeoutError as error:
        raise NotInTime(str(error), FaultSeen.of(fault)) from None
    return FaultSeen.of(fault)


@dataclass(frozen=True, slots=True)
class InterceptedSeen:
    """Requests that wait for a decision, oldest first."""

    requests: list[Intercepted]


def take_intercepted(target: Verbs, number: Index, timeout: Patience = WAIT_SECONDS) -> InterceptedSeen:
    """Take the requests that a fault of /faults/intercept has wait, once there are any; none after timeout.

    body is what follows a request's header, in Kafka's own form. Nobody else gets them: decide about each.
    """
    return InterceptedSeen(fault_numbered(target.faults, number).intercepted.take(timeout))


def decide_intercepted(
    target: Verbs, number: Index, request: Offset, action: DecisionAction, body: bytes | None = None
) -> Done:
    """Decide about a request that waits: pass it on, answer it, or close its connection.

    body is of an answer, or of a request that is changed: what follows the header, of the version that was asked.
    """
    fault_numbered(target.faults, number).intercepted.decide(request, action, body or b"")
    return Done()


def list_injections(target: Verbs, after: Offset = 0) -> InjectionsSeen:
    """List what faults have done, and what was done to records and topics, from a number on; up to 1000 of them."""
    found = [InjectionSeen.of(each) for each in target.faults.record[after : after + _MOST_INJECTIONS]]
    return InjectionsSeen(found, after + len(found))


def list_nodes(target: Verbs) -> NodesSeen:
    """List the nodes."""
    return NodesSeen(target.nodes_seen)


def clock(target: Verbs) -> ClockSeen:
    """Tell the clocks of the nodes."""
    return target.clock


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: how it is asked for, what it takes, what it answers, and who does it."""

    method: str
    path: str
    name: str
    about: str
    parameters: tuple[Parameter, ...]
    result: Any
    call: Callable[..., Any]

    @property
    def in_path(self) -> list[str]:
        """The arguments that its path has."""
        return re.findall(r"\{(\w+)\}", self.path)

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The arguments in an address that is this verb's; None for another's."""
        own = self.path.split("/")[1:]
        if len(own) != len(segments):
            return None
        found = {}
        for wanted, segment in zip(own, segments, strict=True):
            if wanted.startswith("{"):
                found[wanted[1:-1]] = segment
            elif wanted != segment:
                return None
        return found


def _verb(method: str, path: str, function: Callable[..., Any]) -> Verb:
    """The verb that a function or a method of ``Verbs`` does."""
    result = result_of(function)
    call = _of_target(function.__name__) if function.__qualname__.startswith(Verbs.__name__) else function
    if result is type(None):
        call, result = _then(call, lambda _: Done()), Done
    elif result == dict[int, int]:
        call, result = _then(call, Offsets), Offsets
    return Verb(method, path, function.__name__, _about(function), parameters_of(function), result, call)


def _of_target(name: str) -> Callable[..., Any]:
    return lambda target, **arguments: getattr(target, name)(**arguments)


def _then(function: Callable[..., Any], shape: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda target, **arguments: shape(function(target, **arguments))


def _about(function: Callable[..., Any]) -> str:
    text = re.sub(r":\w+:|`|::", "", function.__doc__ or "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


_NODE: Final = Parameter("node", Index | None, needed=False)


def _of_requests(path: str, function: Callable[..., Fault]) -> Verb:
    """A fault of requests, at all nodes or at one."""

    def call(target: Verbs, node: int | None = None, **arguments: Any) -> FaultSeen:
        faults = target.faults if node is None else target.faults_of(node)
        return FaultSeen.of(function(faults, **arguments))

    parameters = (*parameters_of(function), _NODE)
    return Verb("POST", path, f"fault_{function.__name__}", _about(function), parameters, FaultSeen, call)


def _of_records(path: str, function: Callable[..., Any]) -> Verb:
    """An action on records and topics, wherever they are."""
    made = _verb("POST", path, function)

    def call(target: Verbs, **arguments: Any) -> Any:
        return made.call(target.faults, **arguments)

    return Verb(made.method, path, made.name, made.about, made.parameters, made.result, call)


@cache
def verbs() -> tuple[Verb, ...]:
    """All verbs, in the order in which they are told."""
    return (
        _verb("GET", "/", status),
        _verb("GET", "/faults", list_faults),
        _of_requests("/faults/delay", Faults.delay),
        _of_requests("/faults/hold", Faults.hold),
        _of_requests("/faults/error", Faults.error),
        _of_requests("/faults/drop", Faults.drop),
        _of_requests("/faults/stale-latest", Faults.stale_latest),
        _of_requests("/faults/intercept", Faults.intercept),
        _verb("POST", "/faults/{number}/take", take_intercepted),
        _verb("POST", "/faults/{number}/decide", decide_intercepted),
        _verb("POST", "/faults/{number}/wait", wait_for_fault),
        _verb("DELETE", "/faults/{number}", undo_fault),
        _verb("DELETE", "/faults", clear_faults),
        _verb("GET", "/injections", list_injections),
        _verb("POST", "/topics/{topic}/create", Verbs.create_topic),
        _of_records("/topics/{topic}/delete-records", Faults.delete_records),
        _of_records("/topics/{topic}/expire", Faults.expire),
        _of_records("/topics/{topic}/apply-retention", Faults.apply_retention),
        _of_records("/topics/{topic}/offset-gap", Faults.offset_gap),
        _of_records("/topics/{topic}/compact", Faults.compact),
        _of_records("/topics/{topic}/delete", Faults.delete_topic),
        _of_records("/topics/{topic}/recreate", Faults.recreate_topic),
        _verb("POST", "/topics/{topic}/empty", Verbs.empty_topic),
        _verb("POST", "/topics/{topic}/move-leader", Verbs.move_leader),
        _verb("POST", "/groups/move-coordinator", Verbs.move_coordinator),
        _verb("GET", "/clock", clock),
        _verb("POST", "/clock/advance", Verbs.advance),
        _verb("POST", "/clock/stop", Verbs.stop_clock),
        _verb("POST", "/clock/start", Verbs.start_clock),
        _verb("GET", "/nodes", list_nodes),
        _verb("POST", "/nodes", Verbs.add_node),
        _verb("POST", "/nodes/{node}/{action}", Verbs.change_node),
        _verb("POST", "/wait/group", Verbs.wait_for_group),
        _verb("POST", "/wait/committed", Verbs.wait_for_committed),
        _verb("POST", "/wait/end", Verbs.wait_for_end),
        _verb("POST", "/wait/drained", Verbs.wait_until_drained),
        _verb("POST", "/wait/requests", Verbs.wait_for_requests),
        _verb("POST", "/requests/record", Verbs.record_requests),
        _verb("GET", "/requests", Verbs.requests),
        _verb("POST", "/reset", Verbs.reset),
    )
