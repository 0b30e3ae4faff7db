"""BrokerRegistration (key 62): a broker registers with the active controller, and gets its epoch (KIP-631).

Served: 0 to 4. 1: ZooKeeper migration (ignored); 2: log directories; 3: the epoch before a clean stop; 4: features
whose lowest level is 0 (KIP-1022).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.refusals import log_rejection
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration, register_broker
from kbroker.raft_metadata.image import Endpoint, read_features
from kbroker.types import Uuid
from kbroker.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


@handler(BrokerRegistrationRequest)
async def handle(request: BrokerRegistrationRequest, ctx: RequestContext) -> BrokerRegistrationResponse:
    """Register the broker, fenced until its heartbeats show that it has caught up."""
    refused: BrokerRegistrationResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    services = ctx.services
    who = f"broker {request.broker_id}"
    if request.cluster_id != services.cluster_id:
        why = f"it is of cluster {request.cluster_id}, and this is {services.cluster_id}"
        log_rejection(ctx, who, ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    registration = BrokerRegistration(
        broker_id=request.broker_id,
        incarnation_id=Uuid(request.incarnation_id),
        endpoints=[Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners],
        features=read_features(request.features),
        log_dirs=[Uuid(directory) for directory in request.log_dirs],
        rack=request.rack,
        previous_broker_epoch=request.previous_broker_epoch,
    )

    def register(view: ControllerView) -> ControllerResult[int]:
        services.metadata.check_registration(registration)  # here: another may have been heard of meanwhile
        return register_broker(view, registration)

    try:
        epoch = await services.metadata.submit(register)
    except ApiError as error:
        log_rejection(ctx, who, error.code, error.message)
        return BrokerRegistrationResponse(error_code=error.code)
    return BrokerRegistrationResponse(broker_epoch=epoch)
