"""StreamsGroupTopologyDescriptionUpdate (key 93): version 0, flexible from 0."""

from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class TopologyDescriptionNode:
    """Part of StreamsGroupTopologyDescriptionUpdateRequest."""

    name: Str = ""
    node_type: Int8 = 0
    source_topics: list[Str] = field()
    sink_topic: Str | None = field(nullable="0+", default=None)
    stores: list[Str] = field()
    successors: list[Str] = field()


@struct
class TopologyDescriptionSubtopology:
    """Part of StreamsGroupTopologyDescriptionUpdateRequest."""

    subtopology_id: Str = ""
    nodes: list[TopologyDescriptionNode] = field()


@struct
class TopologyDescriptionGlobalStore:
    """Part of StreamsGroupTopologyDescriptionUpdateRequest."""

    source: TopologyDescriptionNode = field()
    processor: TopologyDescriptionNode = field()


@struct
class TopologyDescription:
    """Part of StreamsGroupTopologyDescriptionUpdateRequest."""

    subtopologies: list[TopologyDescriptionSubtopology] = field()
    global_stores: list[TopologyDescriptionGlobalStore] = field()


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest(Request["StreamsGroupTopologyDescriptionUpdateResponse"]):
    """Request of StreamsGroupTopologyDescriptionUpdate (key 93)."""

    group_id: Str = ""
    member_id: Str = ""
    topology_epoch: Int32 = 0
    topology_description: TopologyDescription = field()


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    """Response to StreamsGroupTopologyDescriptionUpdate (key 93)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
