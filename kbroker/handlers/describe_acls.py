"""DescribeAcls: there is no authorizer, and so the answer is always SECURITY_DISABLED, as Apache Kafka's without one.

Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handler(DescribeAclsRequest)
async def handle(request: DescribeAclsRequest, ctx: RequestContext) -> DescribeAclsResponse:
    """Say that there are none to describe. Kafka cannot read a filter with an UNKNOWN element, and closes."""
    if 0 in (request.pattern_type_filter, request.resource_type_filter, request.permission_type, request.operation):
        raise CloseConnection("DescribeAcls with an UNKNOWN element")
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
