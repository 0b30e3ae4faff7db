"""CreateAcls: there is no authorizer, and so each is answered SECURITY_DISABLED, as by Apache Kafka without one.

Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handler(CreateAclsRequest)
async def handle(request: CreateAclsRequest, ctx: RequestContext) -> CreateAclsResponse:
    """Refuse each creation. Kafka cannot read one with an UNKNOWN element, and closes."""
    for creation in request.creations:
        if 0 in (creation.resource_pattern_type, creation.resource_type, creation.permission_type, creation.operation):
            raise CloseConnection("CreateAcls with an UNKNOWN element")
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
            for _ in request.creations
        ]
    )
