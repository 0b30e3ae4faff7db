"""The descriptions of streams groups' topologies on a node that has a keeper of them (KIP-1331).

Members are asked for a description by their heartbeats, send it once, and describing a group shows it. What the keeper
has goes before the group goes: by DeleteGroups, by the classic protocol taking the group id over, or in time. Rules:
Kafka's ``StreamsGroupTopologyDescriptionManager`` and ``GroupCoordinatorService`` (4.4).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import trio

from kbroker.cores.groups.streams.description_backoff import Backoff
from kbroker.cores.groups.streams_descriptions import UNCERTAIN
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.topology_descriptions import DescriptionStatus, description_of, wire_description
from kbroker.node.rules.connection_calls import NoAnswer
from kbroker.rules.descriptions import DescriptionRefused
from kbroker.rules.loading import told

if TYPE_CHECKING:
    from kbroker.cores.groups.streams_protocol import StreamsHeartbeatResult
    from kbroker.node.coordinators.group_driver import GroupDriver
    from kbroker.node.rules.descriptions import DescriptionKeeper
    from kbroker.wire.messages.streams_groups import DescribedGroup, StreamsGroupTopologyDescriptionUpdateRequest

logger = logging.getLogger(__name__)
T = TypeVar("T")

_NOT_HERE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)


class TopologyDescriptions:
    """The descriptions of the topologies of groups that this node coordinates. `run` cleans up."""

    def __init__(self, groups: GroupDriver, keeper: DescriptionKeeper, rng: random.Random) -> None:
        self._groups = groups
        self._keeper = keeper
        self._backoff = Backoff(rng)

    @property
    def counts(self) -> Mapping[str, int]:
        """Calls of the keeper, and rounds of cleaning, for metrics."""
        return self._keeper.counts

    def is_wanted(self, group_id: str, result: StreamsHeartbeatResult) -> bool:
        """Whether the member whose heartbeat had this result is to send the description; others are not asked then."""
        epoch = result.topology_epoch
        if epoch < 0 or epoch in (result.stored_description_epoch, result.failed_description_epoch):
            return False
        return self._backoff.begin(group_id, epoch, self._groups.now_ms())

    async def push(self, request: StreamsGroupTopologyDescriptionUpdateRequest) -> None:
        """Have the description of a member stored. `ApiError`, of the keeper with code 135."""
        groups, group_id, epoch = self._groups, request.group_id, request.topology_epoch
        await groups.read(group_id, lambda core: core.descriptions.check_push(group_id, request.member_id, epoch))
        description = description_of(request.topology_description)
        if not await groups.run(group_id, lambda core, now_ms: core.descriptions.mark(group_id, for_push=True)):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        refusal: DescriptionRefused | None = None
        try:
            is_stored = await self._keeper.store(group_id, epoch, description)
        except DescriptionRefused as refused:
            is_stored, refusal = False, refused
        if not is_stored and refusal is None:
            self._backoff.extend(group_id, epoch, groups.now_ms())
            raise _update_failed("The keeper of topology descriptions has failed.")
        try:
            if refusal is None:
                await groups.run(group_id, lambda core, now_ms: core.descriptions.stored(group_id, epoch))
            else:
                await groups.run(group_id, lambda core, now_ms: core.descriptions.failed(group_id, epoch))
        except ApiError as error:
            self._not_written(group_id, epoch, error)
            raise
        self._backoff.end(group_id, epoch)
        if refusal is not None:
            raise _update_failed(told(refusal))

    def _not_written(self, group_id: str, epoch: int, error: ApiError) -> None:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            self._backoff.end(group_id)
        elif error.code not in _NOT_HERE:
            self._backoff.extend(group_id, epoch, self._groups.now_ms())

    async def attach(self, entry: DescribedGroup, stored_epoch: int) -> None:
        """Add the description to a group that is described, and the status of it."""
        topology = entry.topology
        entry.topology_description_status = DescriptionStatus.NOT_STORED
        if topology is None or stored_epoch < 0 or stored_epoch != topology.epoch:
            return
        try:
            found = await self._keeper.get(entry.group_id, stored_epoch)
            if found is None:
                await self._ask_again(entry.group_id, stored_epoch)
            else:
                entry.topology_description = wire_description(found)
                entry.topology_description_status = DescriptionStatus.AVAILABLE
            self._keeper.counts["get-success"] += 1
        except NoAnswer:
            self._not_shown(entry)
        except (TypeError, ValueError, AttributeError):
            logger.error("group %s: the keeper of topology descriptions gives one that is none", entry.group_id)
            self._not_shown(entry)

    def _not_shown(self, entry: DescribedGroup) -> None:
        entry.topology_description_status = DescriptionStatus.ERROR
        self._keeper.counts["get-error"] += 1

    async def _ask_again(self, group_id: str, epoch: int) -> None:
        """Have a member asked, in half a minute, for a description that the keeper does not have any more."""
        try:
            await self._groups.run(group_id, lambda core, now_ms: core.descriptions.lost(group_id, epoch))
        except ApiError as error:
            logger.info("group %s: its lost description is not asked for yet: %s", group_id, error)
        else:
            self._backoff.begin(group_id, epoch, self._groups.now_ms())

    # -- descriptions that go ------------------------------------------------------------------

    async def delete(self, group_id: str) -> None:
        """Delete what is kept of a group that is to be deleted. `ApiError` GROUP_DELETION_FAILED, or the step's."""
        if await self._groups.read(group_id, lambda core: core.descriptions.stored_epoch(group_id)) == -1:
            return
        if not await self._delete_marked(group_id):
            raise ApiError(
                ErrorCode.GROUP_DELETION_FAILED, "The keeper of topology descriptions failed to delete the topology."
            )

    async def before_join(self, group_id: str) -> None:
        """Delete what is kept of an empty streams group that a classic member is about to take the place of.

        Where that fails, JoinGroup finds the group unchanged and has REBALANCE_IN_PROGRESS.
        """
        core = self._groups.loaded_core(group_id)
        if not core.descriptions.is_waiting(group_id):
            return
        if not self._backoff.is_silent(group_id, UNCERTAIN, self._groups.now_ms()):
            if not await self._delete_marked(group_id):
                self._backoff.begin(group_id, UNCERTAIN, self._groups.now_ms())

    async def _delete_marked(self, group_id: str) -> bool:
        """Mark, delete, and store that it is done; False if the keeper fails. A group with members is left alone."""
        if not await self._groups.run(group_id, lambda core, now_ms: core.descriptions.mark(group_id, for_push=False)):
            return True
        if not await self._keeper.delete(group_id):
            return False
        self._backoff.end(group_id)
        await self._groups.run(group_id, lambda core, now_ms: core.descriptions.after_delete(group_id))
        return True

    async def run(self) -> None:
        """Have the descriptions of groups deleted that have neither members nor offsets any more, again and again."""
        while True:
            await trio.sleep(self._groups.settings().offsets_retention_check_interval_ms / 1000)
            await self.clean()

    async def clean(self) -> None:
        """Once: such groups expire afterwards as others do."""
        self._keeper.counts["cleanup-cycle"] += 1
        for core in self._groups.loaded_cores():
            for group_id in core.descriptions.to_clean():
                self._keeper.counts["cleanup-eligible"] += 1
                try:
                    await self._delete_marked(group_id)
                except ApiError as error:
                    logger.info("group %s: the description of its topology is not deleted yet: %s", group_id, error)
                except Exception:  # whatever it is, the next time comes, and the node has other work
                    logger.exception("group %s: the description of its topology cannot be deleted now", group_id)


def _update_failed(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, message)
