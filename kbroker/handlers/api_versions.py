"""ApiVersions (key 18): what this listener serves; the first request of nearly every client.

Served: 0 to 5. 3: flexible, client_software_name and version (KIP-511), features (KIP-584); 4: supported features
whose lowest version is 0 are listed too (KAFKA-17011; before, they made Java's admin client throw); 5: a client may
name the cluster and the node that it means, and a broker that is another one answers REBOOTSTRAP_REQUIRED (KIP-1242). A
controller does not look at them, as Apache Kafka's.

The list is computed from the registrations of the handlers, with their unstable versions where
``unstable.api.versions.enable`` says so. A request in a version that is not served is answered
in version 0 with UNSUPPORTED_VERSION and this API's own range (KIP-511), so that any client can step down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import (
    BOTH,
    BROKER,
    CONTROLLER,
    ListenerKind,
    Registration,
    api_key_of,
    handler,
    registrations,
)
from kbroker.raft_metadata.features import SUPPORTED_FEATURES
from kbroker.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kbroker.handlers.services.metadata import Metadata

TELEMETRY_APIS = frozenset({71, 72})
"""They are named only where there is a receiver of clients' metrics, as in Apache Kafka."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handler(ApiVersionsRequest)
def handle(request: ApiVersionsRequest, ctx: RequestContext) -> ApiVersionsResponse:
    """List the APIs of the listener, and the cluster's features."""
    version = ctx.header.api_version
    connection = ctx.connection
    if version >= 3:
        name, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        connection.client_software_name = name
        connection.client_software_version = software_version
    if not connection.is_controller and _is_meant_for_another(request, ctx):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    kind = CONTROLLER if connection.is_controller else BROKER
    unstable, has_telemetry = ctx.services.config.unstable_api_versions_enable, ctx.services.telemetry is not None
    response = ApiVersionsResponse(api_keys=_listed(kind, unstable, has_telemetry))
    if version >= 3:
        _add_features(response, ctx.services.metadata, hide_level_0=version < 4)
    return response


def _is_meant_for_another(request: ApiVersionsRequest, ctx: RequestContext) -> bool:
    """Whether the client names another cluster or node (Kafka's ``KafkaApis.clusterIdOrNodeIdIsInvalid``)."""
    if request.cluster_id is None:
        return False
    own = (ctx.services.cluster_id, ctx.services.config.node_id)
    return (request.cluster_id, request.node_id) != own


@cache
def _listed(kind: ListenerKind, unstable: bool, has_telemetry: bool) -> list[ApiVersion]:
    """The APIs of a kind of listener. Many clients may come at once, and each asks."""
    table = registrations(kind, unstable=unstable)
    return advertised({key: entry for key, entry in table.items() if has_telemetry or key not in TELEMETRY_APIS})


def advertised(table: Mapping[int, Registration]) -> list[ApiVersion]:
    """Registrations as ApiVersions lists them."""
    return [
        ApiVersion(api_key=key, min_version=entry.advertised.lowest, max_version=entry.advertised.highest)
        for key, entry in table.items()
    ]


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a request whose version is not served."""
    key = api_key_of(ApiVersionsRequest)
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised({key: registrations(BOTH)[key]})
    )


def _add_features(response: ApiVersionsResponse, metadata: Metadata, *, hide_level_0: bool) -> None:
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        if high > 0 and not (hide_level_0 and low == 0)
    ]
    levels, response.finalized_features_epoch = metadata.finalized_features()
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(levels.items())
        if level > 0
    ]
