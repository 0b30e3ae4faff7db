"""DeleteAcls: there is no authorizer, and so each is answered SECURITY_DISABLED, as by Apache Kafka without one.

Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@handler(DeleteAclsRequest)
async def handle(request: DeleteAclsRequest, ctx: RequestContext) -> DeleteAclsResponse:
    """Refuse each filter. Kafka cannot read one with an UNKNOWN element, and closes."""
    for item in request.filters:
        if 0 in (item.pattern_type_filter, item.resource_type_filter, item.permission_type, item.operation):
            raise CloseConnection("DeleteAcls with an UNKNOWN element")
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
            for _ in request.filters
        ]
    )
