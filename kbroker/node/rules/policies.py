"""Policies of one's own for new topics and changed configs (KIP-108, KIP-133), as the active controller asks them.

It decides on one change after the other, and waits for the answer, which has half a second; no longer for all of a
request, where the rest is left undecided. A policy that raises, is late or answers nonsense lets nothing through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kbroker.config import BrokerConfig
from kbroker.config.security.rules import ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY, names_python
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.rules.complaints import Complaints
from kbroker.node.rules.timed_calls import Busy, CallTimedOut, MakeCalls, Raised, timeout_of
from kbroker.raft_metadata.controller.policies import Policies
from kbroker.raft_metadata.image import ResourceType
from kbroker.rules.loading import call_of, described, told
from kbroker.rules.policies import ConfigChanges, NewTopic, PolicyViolation

TIMEOUT_SECONDS: Final = 0.5
_REFUSED: Final = "what was asked for is refused"


def own_policies(config: BrokerConfig, load: Callable[[str, str, str], Any], calls: MakeCalls) -> Policies:
    """The policies of a node's file. ``load`` takes property, value and method; `FatalError`.

    ``calls`` makes what a rule is asked by.
    """

    def asked(property_name: str) -> _Asked | None:
        name = str(config.values.get(property_name) or "").strip()
        return _Asked(load(property_name, name, "validate"), name, calls) if names_python(name) else None

    create_topic, alter_config = asked(CREATE_TOPIC_POLICY), asked(ALTER_CONFIG_POLICY)

    def begin() -> None:
        for each in (create_topic, alter_config):
            if each is not None:
                each.begin()

    return Policies(
        None if create_topic is None else _CreateTopic(create_topic),
        None if alter_config is None else _AlterConfig(alter_config),
        begin,
    )


class _Asked:
    """A rule that is asked for its consent."""

    def __init__(self, rule: Any, name: str, calls: MakeCalls) -> None:
        self._validate = call_of(rule, "validate")
        self._calls = calls(TIMEOUT_SECONDS, math.inf, timeout_of(rule, name))
        self._complaints = Complaints(name)

    def begin(self) -> None:
        """Another request begins, which has all of the rule's time."""
        self._calls.taken = 0.0

    def check(self, question: object) -> None:
        """`ApiError` POLICY_VIOLATION with the rule's own text, UNKNOWN_SERVER_ERROR if the rule fails.

        REQUEST_TIMED_OUT if the request has used up the rule's time: nothing is decided, and may be asked for again.
        """
        if self._calls.taken >= self._calls.timeout:
            self._complaints.used_up(self._calls.timeout)
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The policy has taken {self._calls.timeout:g} s for what this request names before: ask again.",
            )
        try:
            answer = self._calls.call(self._validate, question)
        except Raised as raised:
            if isinstance(raised.error, PolicyViolation):
                raise ApiError(ErrorCode.POLICY_VIOLATION, told(raised.error)) from None
            self._complaints.failed(described(raised.error), _REFUSED)
        except CallTimedOut:
            self._complaints.late(self._calls.timeout, _REFUSED)
        except Busy:
            self._complaints.busy(_REFUSED)
        else:
            if answer is None:
                return
            self._complaints.nonsense(f"a value of type {type(answer).__name__}", _REFUSED)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The policy has failed, and the log of the controller says how.")


class _CreateTopic:
    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def __call__(
        self,
        topic: str,
        num_partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, str],
    ) -> None:
        self._asked.check(NewTopic(topic, num_partitions, replication_factor, assignments, dict(configs)))


class _AlterConfig:
    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def __call__(self, resource_type: int, resource_name: str, configs: Mapping[str, str | None]) -> None:
        name = ResourceType.NAMES.get(resource_type, str(resource_type))
        self._asked.check(ConfigChanges(name, resource_name, configs))
