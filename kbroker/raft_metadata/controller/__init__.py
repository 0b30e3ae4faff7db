"""The active controller: each operation reads a :class:`ControllerView` and returns records and a response.

A module for each subject has its operations as functions: ``create_topics(view, topics) -> ControllerResult``. None of
them changes anything: ``node/`` appends the records, the :class:`Controller` replays them into its image, and the
response goes out when they are committed (`kbroker.node.controller`). Begin with ``view``, then ``topics``;
``partition_changes`` chooses each leader.
"""

from kbroker.raft_metadata.controller.view import Controller, ControllerResult, ControllerView

__all__ = ["Controller", "ControllerResult", "ControllerView"]
