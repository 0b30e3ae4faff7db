"""ACLs outside of the metadata, as handlers need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kbroker.errors import ApiError
from kbroker.handlers.services.requester import Requester
from kbroker.security.authorizer.acls import Acl, AclFilter


class KeptAcls(Protocol):
    """ACLs that are not in the metadata: an authorizer of one's own keeps them. ``ApiError`` where it fails."""

    async def find(self, wanted: AclFilter) -> Sequence[Acl]:
        """The ACLs that a filter finds."""

    async def create(self, acls: Sequence[Acl], requester: Requester) -> list[ApiError | None]:
        """Add ACLs; the error of each."""

    async def delete(self, filters: Sequence[AclFilter], requester: Requester) -> list[list[Acl] | ApiError]:
        """Remove ACLs; for each filter those that are gone."""
