"""The quota of a request that creates or deletes partitions (KIP-599). Not an API itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.handlers.context import RequestContext
    from kbroker.handlers.services.quotas import MutationQuota


class _Unlimited:
    """The quota of a client that has none."""

    throttle_ms: Final = 0

    def record(self, partitions: int) -> None:
        """Any number will do."""


_UNLIMITED: Final = _Unlimited()


def mutation_quota(ctx: RequestContext, *, strict_since: int) -> MutationQuota:
    """The quota of a request's client, as the active controller counts it.

    From version ``strict_since`` on changes beyond it are refused; before, the client is throttled afterwards. What a
    node asks on its own account has none.
    """
    quotas = ctx.services.quotas.clients
    if quotas is None or ctx.is_own:
        return _UNLIMITED
    return quotas.mutations(ctx, strict_since) or _UNLIMITED
