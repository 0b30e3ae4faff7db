from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class TopologyDescriptionNode:
    name: Str = ""
    node_type: Int8 = 0
    source_topics: list[Str] = field()
    sink_topic: Str | None = field(nullable="0+", default=None)
    stores: list[Str] = field()
    successors: list[Str] = field()


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: Str = ""
    nodes: list[TopologyDescriptionNode] = field()


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = field()
    processor: TopologyDescriptionNode = field()


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = field()
    global_stores: list[TopologyDescriptionGlobalStore] = field()


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest(Request["StreamsGroupTopologyDescriptionUpdateResponse"]):
    group_id: Str = ""
    member_id: Str = ""
    topology_epoch: Int32 = 0
    topology_description: TopologyDescription = field()


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
