"""Assignors of streams groups, by the names in ``group.streams.assignors``.

Those of consumer and share groups are in `kbroker.cores.groups.assignors`. Begin with `spec`, then `sticky`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.cores.groups.streams.assignors.spec import TaskAssignor
from kbroker.cores.groups.streams.assignors.sticky import StickyTaskAssignor

TASK_ASSIGNORS: Mapping[str, TaskAssignor] = {"sticky": StickyTaskAssignor()}
