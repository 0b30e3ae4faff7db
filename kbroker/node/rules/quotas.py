"""Quotas by a rule of one's own (Kafka's ``ClientQuotaCallback``, KIP-257), which is given those that are set.

Where it fails, those that are set hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbroker.node.rules.answer_cache import MAX_KEPT_NAME, AnswerCache
from kbroker.node.rules.complaints import Complaints
from kbroker.node.rules.timed_calls import Busy, CallTimedOut, Raised, WaitedCalls
from kbroker.node.serving.client_quotas import ClientQuotas
from kbroker.raft_metadata.image.topics import NO_LEADER
from kbroker.rules.decision import Decision
from kbroker.rules.loading import call_of, described
from kbroker.rules.records import Cluster, Quota, QuotaClient, QuotaKind
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.quotas.entities import ClientLimits, Limit, QuotaTable

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.controller.metadata_plane import MetadataPlane

_SET = "the quotas that are set hold"


class ImageCluster:
    """The cluster by the node's newest image (`Cluster`): a rule that is late in its thread sees whole ones, too."""

    def __init__(self, node_id: int, metadata: MetadataPlane) -> None:
        self.node_id = node_id
        self._metadata = metadata

    def brokers(self) -> list[int]:
        """See `Cluster.brokers`."""
        return [broker.id for broker in self._metadata.image.alive_brokers()]

    def topics(self) -> list[str]:
        """See `Cluster.topics`."""
        return list(self._metadata.image.topics.by_name)

    def leaders(self, topic: str) -> list[int | None]:
        """See `Cluster.leaders`."""
        found = self._metadata.image.topics.by_name.get(topic)
        partitions = () if found is None else found.partitions.values()
        return [None if each.leader == NO_LEADER else each.leader for each in partitions]


class QuotaRule:
    """The node's rule."""

    def __init__(self, rule: Any, name: str, now: Callable[[], float], calls: WaitedCalls) -> None:
        """``name`` is the rule's in the node's file; ``now`` gives seconds; the rule is asked by ``calls``."""
        self.rule = rule
        self._quota = call_of(rule, "quota")
        self._calls = calls
        self._complaints = Complaints(name)
        self._kept: AnswerCache[ClientLimits] = AnswerCache(rule, now)
        self._table: QuotaTable | None = None

    @property
    def version(self) -> int:
        """Another number whenever an answer may be another one."""
        return self._kept.version

    def limits(self, principal: KafkaPrincipal, client_id: str, table: QuotaTable, cluster: Cluster) -> ClientLimits:
        """The quotas of a client; ``table`` has those that are set."""
        if table is not self._table:
            self._table = table
            self._kept.forget()
        question = (principal.token_authenticated, principal, client_id)
        kept = self._kept.get(question)
        if kept is not None:
            return kept
        changes = self._kept.changes
        are_set = table.limits(principal.name, client_id) or ClientLimits(None, None, None, None)
        found = ClientLimits(
            *(
                self._limit(
                    QuotaClient(kind, principal, client_id, None if limit is None else limit.bound, cluster), limit
                )
                for kind, limit in zip(QuotaKind, are_set, strict=True)
            )
        )
        if len(client_id) <= MAX_KEPT_NAME:
            self._kept.put(question, found, changes)
        return found

    def _limit(self, client: QuotaClient, is_set: Limit | None) -> Limit | None:
        try:
            answer = self._calls.call(self._quota, client)
        except Raised as raised:
            self._complaints.failed(described(raised.error), _SET)
        except CallTimedOut:
            self._complaints.late(self._calls.timeout, _SET)
        except Busy:
            self._complaints.busy(_SET)
        else:
            if answer is Decision.NOT_MINE:
                return is_set
            if isinstance(answer, Quota) and _makes_sense(answer):
                if answer.limit == math.inf:
                    return None
                if answer.shared_by is not None:
                    return Limit(float(answer.limit), (answer.shared_by, _SHARED))
                return Limit(float(answer.limit), (str(client.principal), client.client_id))
            self._complaints.nonsense(
                repr(answer.limit)[:40] if isinstance(answer, Quota) else f"a value of type {type(answer).__name__}",
                _SET,
            )
        return is_set


_SHARED = "\0shared"
"""In the place of a client id, in which it cannot stand for that of a client that shares nothing."""


def _makes_sense(quota: Quota) -> bool:
    number = isinstance(quota.limit, int | float) and not isinstance(quota.limit, bool)
    return number and quota.limit >= 0 and (quota.shared_by is None or type(quota.shared_by) is str)


class RuleQuotas(ClientQuotas):
    """Counts for the quotas that a rule gives."""

    def __init__(self, config: BrokerConfig, now: Callable[[], float], rule: QuotaRule, cluster: Cluster) -> None:
        super().__init__(config, now)
        self._rule = rule
        self._cluster = cluster
        self._seen: tuple[int, object] = -1, None
        self._state: object = None

    @property
    def state(self) -> object:
        """Another object whenever the quotas of a client may be other ones."""
        seen = self._rule.version, self.table
        if seen != self._seen:
            self._seen, self._state = seen, object()
        return self._state

    def limits(self, principal: KafkaPrincipal, client_id: str | None) -> ClientLimits | None:
        """The quotas of a client; None if it has none."""
        found = self._rule.limits(principal, client_id or "", self.table, self._cluster)
        return found if any(limit is not None for limit in found) else None
