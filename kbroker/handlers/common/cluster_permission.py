"""The check of requests that need one operation on the cluster, and nothing else. Not an API itself.

``handlers.common.permissions`` says which operation that is (``AuthHelper.authorizeClusterOperation``). Nodes make such
requests to their own controller when they start: what an authorizer needs is imported with the first question to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.registry import API_KEYS, ASKED_BY_NODES, FETCH_KEY

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext

_STANDARD = frozenset({"ControllerRegistration", "AddRaftVoter", "RemoveRaftVoter", "DescribeQuorum"})
"""APIs that say no more than what the error code says."""


def cluster_denial(ctx: RequestContext) -> ApiError | None:
    """CLUSTER_AUTHORIZATION_FAILED if the request's principal may not make it; the audit log hears of it.

    The connection of one that nodes alone ask, and that may be made, is known as a node's.
    """
    denial = None if ctx.authorizer is None else _denial(ctx)
    # A Fetch whose permission is asked here is one of the metadata log: nodes alone read it.
    if denial is None and (ctx.header.api_key in ASKED_BY_NODES or ctx.header.api_key == FETCH_KEY):
        ctx.connection.is_of_node = True
    return denial


def _denial(ctx: RequestContext) -> ApiError | None:
    from kbroker.handlers.common.authorization import may_on_cluster
    from kbroker.handlers.common.metadata_common import standard_message
    from kbroker.handlers.common.permissions import cluster_operation

    api = API_KEYS[ctx.header.api_key].name
    operation = cluster_operation(api, is_controller=ctx.connection.is_controller)
    if may_on_cluster(ctx, operation):
        return None
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ApiError(
        code, standard_message(code) if api in _STANDARD else f"Request {api} needs {operation.name} permission."
    )


def cluster_refusal(ctx: RequestContext, request: object) -> Any:
    """The API's answer with :func:`cluster_denial`; None if the request's principal may make it.

    ``CloseConnection`` if the answer has no place for an error (nothing is asked for, say): Kafka closes then, too.
    """
    denial = cluster_denial(ctx)
    if denial is None:
        return None
    from kbroker.handlers.common.error_answers import error_answer

    response = error_answer(ctx.header.api_key, ctx.api_version, request, denial.code, denial.message)
    if response is None:
        from kbroker.handlers.common.context import CloseConnection

        raise CloseConnection(f"it may not be served ({denial.code.name}), and has no place to say so")
    return response
