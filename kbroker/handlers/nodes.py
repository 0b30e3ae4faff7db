"""Brokers and controllers: registered, kept alive by heartbeats, and unregistered.

BrokerRegistration (key 62): a broker registers with the active controller, and gets its epoch (KIP-631).
Served: 0 to 4. 1: ZooKeeper migration (ignored); 2: log directories; 3: the epoch before a clean stop; 4: features
whose lowest level is 0 (KIP-1022).

BrokerHeartbeat (key 63): a broker keeps its session with the active controller, and learns if it is fenced.
Served: 0 to 2. 1: failed log directories (KIP-858); 2: cordoned log directories (KIP-1066).

ControllerRegistration (key 70): a controller registers its listeners and features (KIP-919).
Served: 0.

UnregisterBroker: forget a broker that has left the cluster for good. Served: 0.

UnregisterController (key 94): forget a controller that has left the cluster for good (KIP-1312). Served: 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.common.refusals import log_rejection
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import (
    BrokerRegistration,
    register_broker,
    register_controller,
    unregister_broker,
    unregister_controller,
)
from kbroker.raft_metadata.controller.sessions import Heartbeat
from kbroker.raft_metadata.controller.surviving_logs import Key, LogEnd
from kbroker.raft_metadata.image import ControllerImage, Endpoint, read_endpoints, read_features
from kbroker.types import Uuid
from kbroker.wire.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    LogEndData,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


@handler(BrokerRegistrationRequest)
async def handle_broker_registration(
    request: BrokerRegistrationRequest, ctx: RequestContext
) -> BrokerRegistrationResponse:
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


@handler(BrokerHeartbeatRequest)
async def handle_broker_heartbeat(request: BrokerHeartbeatRequest, ctx: RequestContext) -> BrokerHeartbeatResponse:
    """Extend the broker's session; unfence it when it has caught up, fence it at its own request."""
    refused: BrokerHeartbeatResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        state = await ctx.services.metadata.heartbeat(
            Heartbeat(
                request.broker_id,
                request.broker_epoch,
                request.current_metadata_offset,
                request.want_fence,
                request.want_shut_down,
                tuple(Uuid(directory) for directory in request.offline_log_dirs),
                None if request.cordoned_log_dirs is None else tuple(map(Uuid, request.cordoned_log_dirs)),
                request.is_last,
                None if request.log_ends is None else _log_ends(request.log_ends),
            ),
            ctx.connection,
        )
    except ApiError as error:
        log_rejection(ctx, f"broker {request.broker_id}", error.code, error.message)
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=state.is_caught_up, is_fenced=state.is_fenced, should_shut_down=state.should_shut_down
    )


def _log_ends(entries: Iterable[LogEndData]) -> dict[Key, LogEnd]:
    return {
        (Uuid(each.topic_id), each.partition): LogEnd(
            each.leader_epoch, each.epoch_start_offset, each.end_offset, each.missing
        )
        for each in entries
    }


@handler(ControllerRegistrationRequest)
async def handle_controller_registration(
    request: ControllerRegistrationRequest, ctx: RequestContext
) -> ControllerRegistrationResponse:
    """Register the controller."""
    refused: ControllerRegistrationResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    registration = ControllerImage(
        id=request.controller_id,
        incarnation_id=Uuid(request.incarnation_id),
        endpoints=read_endpoints(request.listeners),
        features=read_features(request.features),
    )
    try:
        await ctx.services.metadata.submit(lambda view: register_controller(view, registration))
    except ApiError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
    return ControllerRegistrationResponse(error_message=None)


@handler(UnregisterBrokerRequest)
async def handle_unregister_broker(request: UnregisterBrokerRequest, ctx: RequestContext) -> UnregisterBrokerResponse:
    """Unregister the broker, whether it runs or not."""
    refused: UnregisterBrokerResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        await ctx.services.metadata.submit(lambda view: unregister_broker(view, request.broker_id))
    except ApiError as error:
        code, message = error_fields(error)
        return UnregisterBrokerResponse(error_code=code, error_message=message)
    return UnregisterBrokerResponse(error_message=None)


@handler(UnregisterControllerRequest)
async def handle_unregister_controller(
    request: UnregisterControllerRequest, ctx: RequestContext
) -> UnregisterControllerResponse:
    """Unregister the controller. One that runs registers again when it starts."""
    refused: UnregisterControllerResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        metadata = ctx.services.metadata
        await metadata.submit(lambda view: unregister_controller(view, request.controller_id, metadata.voter_ids))
    except ApiError as error:
        code, message = error_fields(error)
        return UnregisterControllerResponse(error_code=code, error_message=message)
    return UnregisterControllerResponse(error_message=None)
