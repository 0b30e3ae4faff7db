"""The active controller: every change of the cluster's metadata is decided here and comes out as records."""

from kbroker.raft_metadata.controller.controller import Controller
from kbroker.raft_metadata.controller.result import ControllerResult

__all__ = ["Controller", "ControllerResult"]
