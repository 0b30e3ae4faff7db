"""Assignors of streams groups, by the names in ``group.streams.assignors``."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.cores.groups.streams.assignors.spec import TaskAssignor
from kbroker.cores.groups.streams.assignors.sticky import StickyTaskAssignor

TASK_ASSIGNORS: Mapping[str, TaskAssignor] = {"sticky": StickyTaskAssignor()}
