"""The assignors of a broker that are not Kafka's own (KIP-848, KIP-1357): by name, as the coordinator is given them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.cores.groups.assignors.spec import NamedTopicsAssignor, ShareAssignor
    from kbroker.cores.groups.streams.assignors.spec import TaskAssignor


class OwnAssignors(NamedTuple):
    """Assignors by the names in ``group.consumer.assignors`` and the like."""

    consumer: Mapping[str, NamedTopicsAssignor] = MappingProxyType({})
    streams: Mapping[str, TaskAssignor] = MappingProxyType({})
    share: ShareAssignor | None = None
    """The one that share groups have in place of ``simple``."""


NO_OWN_ASSIGNORS = OwnAssignors()
