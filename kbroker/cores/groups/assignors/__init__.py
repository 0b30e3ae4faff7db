"""The assignors that run on the broker for KIP-848 groups (``group.consumer.assignors``).

The `simple` assignor is that of share groups; streams groups have theirs in `kbroker.cores.groups.streams.assignors`.
Begin with `spec`, the input and output of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kbroker.cores.groups.assignors.range import RangeAssignor
from kbroker.cores.groups.assignors.spec import Assignment, Assignor, AssignorError, GroupSpec, MemberSpec, TopicsView
from kbroker.cores.groups.assignors.uniform import UniformAssignor

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "AssignorError",
    "GroupSpec",
    "MemberSpec",
    "RangeAssignor",
    "TopicsView",
    "UniformAssignor",
]

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())}
)
"""By name, in Kafka's default order of preference."""
