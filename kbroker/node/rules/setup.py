"""The rules for a whole node, by the properties of its own file."""

from __future__ import annotations

import inspect
import logging
import math
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config.assignors import all_assignors, names_callable
from kbroker.config.security.authorization import AUTHORIZER
from kbroker.config.security.rules import (
    ALTER_CONFIG_POLICY,
    CREATE_TOPIC_POLICY,
    DESCRIPTION_PLUGIN,
    QUOTA_CALLBACK,
    REPLICA_SELECTOR,
    names_python,
)
from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS
from kbroker.errors import FatalError
from kbroker.node.rules.authorizer import OwnAuthorizer
from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.node.rules.own_acls import OwnAcls, own_acls
from kbroker.node.rules.quotas import ImageCluster, QuotaRule, RuleQuotas
from kbroker.node.rules.timed_calls import (
    GRACE_SECONDS,
    MAX_TIMEOUT_SECONDS,
    START_SECONDS,
    TIMEOUT_SECONDS,
    WaitedCalls,
)
from kbroker.raft_metadata.controller.policies import NO_POLICIES
from kbroker.rules.loading import call_of, described, load

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.coordinators.group_driver import GroupDriver
    from kbroker.node.rules.descriptions import DescriptionKeeper
    from kbroker.node.rules.selector import SelectorRule
    from kbroker.node.rules.topology_descriptions import TopologyDescriptions
    from kbroker.runtime.env import Env
    from kbroker.security.authorizer.standard import StandardAuthorizer

logger = logging.getLogger(__name__)

REFRESH_TIMEOUT_SECONDS = 30.0


class NodeRules:
    """Authorizer, quota callback, assignors and policies. ``FatalError`` in one line if one cannot be had."""

    def __init__(self, config: BrokerConfig, standard: StandardAuthorizer | None, env: Env) -> None:
        """``standard`` decides what the authorizer leaves to it."""
        self._env = env
        self.authorizer: OwnAuthorizer | None = None
        self.acls: OwnAcls | None = None
        """The ACLs that the authorizer keeps by itself."""
        self._quotas: QuotaRule | None = None
        self._refreshed: list[tuple[str, Any]] = []
        self._calls: list[WaitedCalls] = []
        name = str(config.values.get(AUTHORIZER) or "").strip()
        if names_python(name):
            assert standard is not None
            rule = self._load(AUTHORIZER, name, "authorize")
            self.authorizer = OwnAuthorizer(rule, name, standard, env.now, self._waited_calls())
            self.acls = own_acls(rule, name, self.authorizer.invalidate)
            if self.acls is not None and getattr(rule, "keep_seconds", 0) == math.inf:
                logger.warning(
                    "%s: it keeps ACLs, and keep_seconds is infinite: a change on one node does not end the answers"
                    " that others keep",
                    name,
                )
        self.assignors = NO_OWN_ASSIGNORS
        """Those of consumer groups, share groups and streams groups."""
        if config.is_broker and any(map(names_callable, all_assignors(config))):
            from kbroker.node.rules.assignors import own_assignors

            self.assignors = own_assignors(config, self._load, self._waited_calls)
        self.policies = NO_POLICIES
        """Those of the controller."""
        named = [name for name in (CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY) if config.values.get(name)]
        if named and config.is_controller:
            from kbroker.node.rules.policies import own_policies

            self.policies = own_policies(config, self._load, self._waited_calls)
        elif named:
            logger.warning("%s: controllers ask policies, and this node is none", ", ".join(named))
        name = str(config.values.get(QUOTA_CALLBACK) or "").strip()
        if names_python(name):
            rule = self._load(QUOTA_CALLBACK, name, "quota")
            self._quotas = QuotaRule(rule, name, env.now, self._waited_calls())

        name = str(config.values.get(DESCRIPTION_PLUGIN) or "").strip()
        self.selector: SelectorRule | None = None
        selector = str(config.values.get(REPLICA_SELECTOR) or "").strip()
        if config.is_broker and names_python(selector):
            from kbroker.node.rules.selector import SelectorRule

            rule = self._load(REPLICA_SELECTOR, selector, "select")
            self.selector = SelectorRule(rule, selector, env.now, self._waited_calls)
        self._keeper: DescriptionKeeper | None = None
        self._descriptions: TopologyDescriptions | None = None
        if config.is_broker and names_python(name):
            from kbroker.node.rules.descriptions import DescriptionKeeper

            self._keeper = DescriptionKeeper(self._load(DESCRIPTION_PLUGIN, name, "store", may_wait=True), name)

    def _load(self, property_name: str, text: str, method: str, *, may_wait: bool = False) -> Any:
        rule = load(property_name, text, method)
        call = call_of(rule, method)
        if inspect.iscoroutinefunction(call) and not may_wait:
            raise FatalError(
                f"{property_name}={text}: it is an async def, and a node cannot wait within a request: decide by what"
                " is in memory, and bring that up to date in refresh()"
            )
        if float(getattr(rule, "refresh_seconds", 0) or 0) > 0:
            try:
                rule.changes = getattr(rule, "changes", 0)
            except Exception as error:  # of __slots__, a frozen dataclass, a property
                raise FatalError(
                    f"{property_name}={text}: it has refresh, so its attribute changes must be one that can be set:"
                    f" {described(error)}"
                ) from None
            self._refreshed.append((text, rule))
        return rule

    def _waited_calls(
        self, timeout: float = TIMEOUT_SECONDS, grace: float = GRACE_SECONDS, own: float | None = None
    ) -> WaitedCalls:
        """Calls of one rule that the node waits for, with its ``own`` time-out if it has one.

        Their thread ends with the node.
        """
        times = self._env.budgets.rule_patience
        timeout = min(timeout * times, MAX_TIMEOUT_SECONDS) if own is None else own
        self._calls.append(WaitedCalls(self._env.now, timeout, grace * times, START_SECONDS * times))
        return self._calls[-1]

    def describe(self, groups: GroupDriver) -> None:
        """Have groups send descriptions of topologies to their keeper, if there is one."""
        if self._keeper is not None:
            from kbroker.node.rules.topology_descriptions import TopologyDescriptions

            groups.descriptions = self._descriptions = TopologyDescriptions(groups, self._keeper, self._env.rng)

    def quotas(self, config: BrokerConfig, metadata: MetadataPlane) -> RuleQuotas | None:
        """The quotas that the callback decides; None without a callback."""
        if self._quotas is None:
            return None
        return RuleQuotas(config, self._env.now, self._quotas, ImageCluster(config.node_id, metadata))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Refresh the rules that want it, for the first time before ``started``; end their threads when cancelled."""
        try:
            calls = [
                (AwaitedCalls(_Refresh(rule), "refresh", f"refresh of {name}", "the rules stay as they are"), rule)
                for name, rule in self._refreshed
            ]
            async with trio.open_nursery() as nursery:
                for call, rule in calls:
                    nursery.start_soon(_refresh, call, rule)
            task_status.started()
            async with trio.open_nursery() as nursery:
                for call, rule in calls:
                    nursery.start_soon(_refresh_for_ever, call, rule)
                if self._descriptions is not None:
                    nursery.start_soon(self._descriptions.run)
                nursery.start_soon(trio.sleep_forever)
        finally:
            for each in self._calls:
                each.close()


class _Refresh:
    """A rule's ``refresh``, as a rule without an argument's name; it has more time than others."""

    timeout_seconds = REFRESH_TIMEOUT_SECONDS
    threads = 1

    def __init__(self, rule: Any) -> None:
        refresh = rule.refresh
        if inspect.iscoroutinefunction(refresh):

            async def call(_: object) -> None:
                await refresh()

            self.refresh: Any = call
        else:
            self.refresh = lambda _: refresh()


async def _refresh(call: AwaitedCalls, rule: Any) -> None:
    try:
        await call.call(None)
    except NoAnswer:
        return
    rule.changes = getattr(rule, "changes", 0) + 1


async def _refresh_for_ever(call: AwaitedCalls, rule: Any) -> None:
    while True:
        await trio.sleep(float(rule.refresh_seconds))
        await _refresh(call, rule)
