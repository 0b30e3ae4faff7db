"""Descriptions of topologies as requests and responses have them, and as a keeper has them (KIP-1331).

Kafka's ``StreamsGroupTopologyDescriptionConverter`` (4.4).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from kbroker.errors import ApiError, ErrorCode
from kbroker.rules.descriptions import (
    DescribedNode,
    DescribedSubtopology,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TopologyDescription,
)
from kbroker.wire.messages import streams_groups


class DescriptionStatus(IntEnum):
    """``TopologyDescriptionStatus`` of StreamsGroupDescribe."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


_SOURCE, _PROCESSOR, _SINK = 1, 2, 3


class _WireNode(Protocol):
    name: str
    node_type: int
    source_topics: list[str]
    sink_topic: str | None
    stores: list[str]
    successors: list[str]


def description_of(wire: streams_groups.UpdateTopologyDescription) -> TopologyDescription:
    """The description of a request. `ApiError` INVALID_REQUEST for nodes that make no sense."""
    return TopologyDescription(
        tuple(
            DescribedSubtopology(each.subtopology_id, tuple(map(_node_of, each.nodes))) for each in wire.subtopologies
        ),
        tuple(_store_of(each) for each in wire.global_stores),
    )


def _store_of(wire: streams_groups.UpdateTopologyDescriptionGlobalStore) -> GlobalStore:
    source, processor = _node_of(wire.source), _node_of(wire.processor)
    if not isinstance(source, SourceNode) or not isinstance(processor, ProcessorNode):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Global store must be composed of a source and a processor node.")
    return GlobalStore(source, processor)


def _node_of(wire: _WireNode) -> DescribedNode:
    successors = tuple(dict.fromkeys(wire.successors))
    if wire.node_type == _SOURCE:
        return SourceNode(wire.name, tuple(dict.fromkeys(wire.source_topics)), successors)
    if wire.node_type == _PROCESSOR:
        return ProcessorNode(wire.name, tuple(dict.fromkeys(wire.stores)), successors)
    if wire.node_type == _SINK:
        return SinkNode(wire.name, wire.sink_topic, successors)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown topology node type: {wire.node_type}")


def wire_description(description: TopologyDescription) -> streams_groups.DescribeTopologyDescription:
    """The description as StreamsGroupDescribe has it. `TypeError` or the like for one that a keeper has made wrong."""
    return streams_groups.DescribeTopologyDescription(
        subtopologies=[
            streams_groups.DescribeTopologyDescriptionSubtopology(
                subtopology_id=_text(each.id), nodes=[_wire_node(node) for node in each.nodes]
            )
            for each in description.subtopologies
        ],
        global_stores=[
            streams_groups.DescribeTopologyDescriptionGlobalStore(
                source=_wire_node(store.source), processor=_wire_node(store.processor)
            )
            for store in description.global_stores
        ],
    )


def _wire_node(node: DescribedNode) -> streams_groups.DescribeTopologyDescriptionNode:
    wire = streams_groups.DescribeTopologyDescriptionNode(
        name=_text(node.name), successors=[_text(each) for each in node.successors]
    )
    if isinstance(node, SourceNode):
        wire.node_type, wire.source_topics = _SOURCE, [_text(topic) for topic in node.topics]
    elif isinstance(node, ProcessorNode):
        wire.node_type, wire.stores = _PROCESSOR, [_text(store) for store in node.stores]
    elif isinstance(node, SinkNode):
        wire.node_type = _SINK
        wire.sink_topic = None if node.topic is None else _text(node.topic)
    else:
        raise TypeError(f"no node of a topology: a value of type {type(node).__name__}")
    return wire


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"no text: a value of type {type(text).__name__}")
    return text
