"""A replica selector of one's own (Kafka's ``ReplicaSelector``, KIP-392), which a leader asks for a consumer's Fetch.

An answer is kept for a while: a consumer that stays with the leader comes again at once. Where the rule fails, the
leader serves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kbroker.cores.replication.replica_selector import ReplicaSelector, ReplicaView
from kbroker.node.rules.answer_cache import MAX_KEPT_NAME, AnswerCache
from kbroker.node.rules.complaints import Complaints
from kbroker.node.rules.timed_calls import (
    GRACE_SECONDS,
    TIMEOUT_SECONDS,
    Busy,
    CallTimedOut,
    MakeCalls,
    Raised,
    timeout_of,
)
from kbroker.rules.loading import call_of, described
from kbroker.rules.records import Reading, Replica
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext

_LEADER: Final = "the leader serves the consumer"


class SelectorRule:
    """The node's rule."""

    def __init__(self, rule: Any, name: str, now: Callable[[], float], calls: MakeCalls) -> None:
        """``name`` is the rule's in the node's file; ``now`` gives seconds; ``calls`` makes its calls."""
        self._rule = rule
        self._select = call_of(rule, "select")
        self._calls = calls(TIMEOUT_SECONDS, GRACE_SECONDS, timeout_of(rule, name))
        self._complaints = Complaints(name)
        self._kept: AnswerCache[int] = AnswerCache(rule, now)

    def of_request(self, ctx: RequestContext, rack: str) -> tuple[ReplicaSelector, Hashable]:
        """Returns the selector for a consumer's Fetch; `rack` is "" without one (`FetchParams.selection`)."""
        client_id, listener, principal = ctx.header.client_id or "", ctx.connection.listener_name, ctx.principal

        def select(partition: TopicPartition, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
            reading = Reading(
                partition.topic,
                partition.partition,
                rack,
                client_id,
                principal,
                ctx.host,
                listener,
                _replica(leader),
                tuple(map(_replica, followers)),
            )
            return self._answer(reading)

        asker = rack, client_id, principal, principal.token_authenticated, ctx.host, listener
        return select, (self._kept.version, asker)

    def _answer(self, reading: Reading) -> int:
        """The broker id of the replica that is to serve."""
        # How far the replicas are changes all the time; which ones there are does not.
        question = (
            *reading[:7],
            reading.principal.token_authenticated,
            reading.leader.node_id,
            tuple((each.node_id, each.rack) for each in reading.followers),
        )
        kept = self._kept.get(question)
        if kept is not None:
            return kept
        changes, leader = self._kept.changes, reading.leader.node_id
        try:
            answer = self._calls.call(self._select, reading)
        except Raised as raised:
            self._complaints.failed(described(raised.error), _LEADER)
            return leader
        except CallTimedOut:
            self._complaints.late(self._calls.timeout, _LEADER)
            return leader
        except Busy:
            self._complaints.busy(_LEADER)
            return leader
        if answer is None:
            answer = leader
        elif type(answer) is not int:
            self._complaints.nonsense(f"a value of type {type(answer).__name__}", _LEADER)
            return leader
        elif answer != leader and all(answer != each.node_id for each in reading.followers):
            self._complaints.bad(f"node {answer} has no replica that could serve", _LEADER)
            return leader
        if len(reading.client_id) <= MAX_KEPT_NAME and len(reading.rack) <= MAX_KEPT_NAME:
            self._kept.put(question, answer, changes)
        return int(answer)


def _replica(view: ReplicaView) -> Replica:
    return Replica(view.broker_id, view.rack or "", view.log_end_offset, view.behind_ms)
