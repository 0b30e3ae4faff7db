"""Keeps a node's authorizer up to date with the metadata (Kafka's ``AclPublisher``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kbroker.raft_metadata.controller.acls import acl_of
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import AclOperation
from kbroker.types import Uuid
from kbroker.wire.records.metadata import AccessControlEntryRecord

logger = logging.getLogger(__name__)

_MANY = 100
"""From so many ACLs less on it is quicker to begin anew than to look for each."""


_MOST_TOLD = 100
"""Principals of which is told that they are no super users; clients can make up more."""


class AclLoader:
    """Gives an authorizer the ACLs of each image. Every change takes effect as a whole."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer
        self._told: set[str] = set()
        authorizer.when_too_early = self._on_early_question
        self._known: Mapping[Uuid, AccessControlEntryRecord] | None = None

    def begin(self, image: MetadataImage) -> None:
        """Take over the ACLs of the first image that has all that was committed (``MetadataPlane.when_loaded``).

        Until then the authorizer decides about super users alone: by the ACLs of an earlier state of the cluster it
        would allow what is denied since.
        """
        acls = self._known = image.principals.acls
        self._authorizer.when_too_early = None
        self._authorizer.replace(map(acl_of, acls.values()))
        logger.info("the authorizer has loaded %d ACLs", len(acls))

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over the ACLs of each later image."""
        acls, known = image.principals.acls, self._known
        if known is None or acls is known:
            return
        self._known = acls
        removed = [acl_of(record) for acl_id, record in known.items() if acls.get(acl_id) is not record]
        if len(removed) > _MANY:
            self._authorizer.replace(map(acl_of, acls.values()))
            return
        added = [acl_of(record) for acl_id, record in acls.items() if known.get(acl_id) is not record]
        self._authorizer.change(removed, added)

    def _on_early_question(self, principal: str, host: str, operation: AclOperation) -> None:
        """Say it once for each node that may not take part. The voters of a new cluster may wait for it for ever:
        without it there is no leader, so there are no ACLs that could let it in."""
        if operation is not AclOperation.CLUSTER_ACTION or principal in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(principal)
        logger.warning(
            "%s (%s) asks for CLUSTER_ACTION before there are ACLs, and is not in super.users: if it is a node, add it"
            " there on every node",
            principal,
            host,
        )
