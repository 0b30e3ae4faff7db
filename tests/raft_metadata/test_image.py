"""Images and deltas: replay in any cut gives the same image, old images stay as they were, snapshots are complete."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.raft_metadata.image import EMPTY_IMAGE, ConfigResource, MetadataDelta, MetadataImage, MetadataReplayError
from kbroker.raft_metadata.image.topics import LARGE, Layered
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records import metadata as rec
from tests.with_each import examples


def history(seed: int, length: int) -> list[Any]:
    """Records that can follow one another."""
    rng = random.Random(seed)
    out: list[Any] = [rec.FeatureLevelRecord(name="metadata.version", feature_level=30)]
    topics: dict[bytes, tuple[str, int]] = {}
    brokers: dict[int, int] = {}
    next_producer_id = 0
    for offset in range(1, length):
        choice = rng.randrange(9)
        if choice == 0 or not topics:
            topic_id = rng.randbytes(16)
            name = f"t{rng.randrange(1000)}.{offset}"
            topics[topic_id] = (name, 0)
            out.append(rec.TopicRecord(name=name, topic_id=Uuid(topic_id)))
            continue
        topic_id = rng.choice(list(topics))
        name, partitions = topics[topic_id]
        if choice == 1:
            record = rec.PartitionRecord(
                partition_id=partitions, topic_id=Uuid(topic_id), replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0,
                partition_epoch=0, directories=[Uuid(rng.randbytes(16)), Uuid(rng.randbytes(16))],
            )  # fmt: skip
            topics[topic_id] = (name, partitions + 1)
            out.append(record)
        elif choice == 2 and partitions:
            change = rec.PartitionChangeRecord(partition_id=rng.randrange(partitions), topic_id=Uuid(topic_id))
            change.leader = rng.choice([-2, -1, 1, 2])
            change.isr = rng.choice([None, [1], [2, 1]])
            out.append(change)
        elif choice == 3:
            value = rng.choice([None, "1", "2"])
            out.append(rec.ConfigRecord(resource_type=2, resource_name=name, name=rng.choice("abc"), value=value))
        elif choice == 4:
            broker = rng.randrange(3)
            brokers[broker] = offset
            endpoint = rec.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)
            feature = rec.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)
            out.append(
                rec.RegisterBrokerRecord(
                    broker_id=broker, broker_epoch=offset, end_points=[endpoint], features=[feature], rack="r"
                )
            )
        elif choice == 5 and brokers:
            broker = rng.choice(list(brokers))
            out.append(
                rec.BrokerRegistrationChangeRecord(
                    broker_id=broker, broker_epoch=brokers[broker], fenced=rng.choice([-1, 1])
                )
            )
        elif choice == 6:
            next_producer_id += 1000
            out.append(rec.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=next_producer_id))
        elif choice == 7 and rng.random() < 0.3:
            del topics[topic_id]
            out.append(rec.RemoveTopicRecord(topic_id=Uuid(topic_id)))
        else:
            entity = [rec.EntityData(entity_type="user", entity_name=rng.choice([None, "a"]))]
            out.append(rec.ClientQuotaRecord(entity=entity, key="k", value=1.5, remove=rng.random() < 0.3))
    return out


def replay(image: MetadataImage, records: list[Any], last_offset: int) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(OffsetAndEpoch(last_offset, 1))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 120), st.data())
def test_any_cut_gives_the_same_image_and_old_images_stay(seed: int, length: int, data: st.DataObject) -> None:
    records = history(seed, length)
    whole = replay(EMPTY_IMAGE, records, length - 1)
    cut = data.draw(st.integers(0, length))
    first = replay(EMPTY_IMAGE, records[:cut], cut - 1)
    before = list(map(repr, first.records()))
    assert replay(first, records[cut:], length - 1) == whole
    assert list(map(repr, first.records())) == before


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 120))
def test_an_images_records_give_it_again(seed: int, length: int) -> None:
    whole = replay(EMPTY_IMAGE, history(seed, length), length - 1)
    assert replay(EMPTY_IMAGE, list(whole.records()), length - 1) == whole
    delta, replayed = MetadataDelta.whole(whole), MetadataDelta(EMPTY_IMAGE)
    for record in whole.records():
        replayed.replay(record)
    assert delta.apply(whole.provenance) == whole and delta.features_changed == replayed.features_changed
    for name in ("topics", "partitions", "configs", "brokers", "controllers"):
        assert getattr(delta, f"changed_{name}") == getattr(replayed, f"changed_{name}"), name


def test_untouched_parts_are_shared() -> None:
    image = replay(EMPTY_IMAGE, history(3, 100), 99)
    delta = MetadataDelta(image)
    delta.replay(rec.ConfigRecord(resource_type=4, resource_name="", name="x", value="y"))
    after = delta.apply(OffsetAndEpoch(100, 1))
    assert after.topics is image.topics and after.brokers is image.brokers
    assert list(delta.changed_configs) == [ConfigResource(4, "")]


def test_a_topic_made_again_under_its_name_in_one_delta_is_a_new_topic() -> None:
    old, new = Uuid(b"a" * 16), Uuid(b"b" * 16)
    image = replay(EMPTY_IMAGE, [rec.TopicRecord(name="t", topic_id=old)], 0)
    delta = MetadataDelta(image)
    delta.replay(rec.RemoveTopicRecord(topic_id=old))
    delta.replay(rec.TopicRecord(name="t", topic_id=new))
    after = delta.apply(OffsetAndEpoch(2, 1))
    assert list(delta.deleted_topics) == [old] and list(delta.changed_topics) == [new]
    assert after.topics.by_name["t"].id == new and list(after.topics.by_id) == [new]


@pytest.mark.parametrize(
    "record",
    [
        rec.RemoveTopicRecord(topic_id=Uuid(b"x" * 16)),
        rec.PartitionRecord(topic_id=Uuid(b"x" * 16), partition_id=0, directories=[]),
        rec.PartitionChangeRecord(topic_id=Uuid(b"x" * 16), partition_id=0),
        rec.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1),
        rec.ClearElrRecord(topic_name="x"),
        rec.RemoveAccessControlEntryRecord(id=Uuid(b"x" * 16)),
    ],
)
def test_records_that_cannot_follow_are_refused(record: Any) -> None:
    with pytest.raises(MetadataReplayError):
        MetadataDelta(EMPTY_IMAGE).replay(record)


@given(st.lists(st.tuples(st.sampled_from(["set", "delete", "copy"]), st.integers(0, 30), st.integers(0, 5))))
def test_a_layered_mapping_is_what_a_dictionary_would_be(steps: list[tuple[str, int, int]]) -> None:
    plain = dict.fromkeys(range(20), -1)
    layered, copies = Layered(dict(plain), {}, len(plain)), []
    for step, key, value in steps:
        if step == "set":
            plain[key] = layered[key] = value
        elif step == "delete" and key in plain:
            del plain[key], layered[key]
        elif step == "copy":
            copies.append((layered, dict(plain)))
            layered = layered.copied()
        assert (key in layered, layered.get(key)) == (key in plain, plain.get(key))
    for mapping, wanted in [*copies, (layered, plain)]:
        assert (
            dict(mapping) == wanted
            and len(mapping) == len(wanted)
            and list(mapping.values()) == [*dict(mapping).values()]
        )


def test_many_topics_are_read_and_changed_as_few_are() -> None:
    """The images of a large cluster share their mappings; what an image has does not change with the next."""
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(LARGE + 50)]
    names = [f"t.{number}" for number in range(len(ids))]
    first = MetadataDelta(EMPTY_IMAGE)
    for name, topic_id in zip(names, ids, strict=True):
        first.replay(rec.TopicRecord(name=name, topic_id=topic_id))
        first.replay(rec.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1))
    images = [first.apply(OffsetAndEpoch(1, 1))]
    for number, topic_id in enumerate(ids[:100]):
        delta = MetadataDelta(images[-1])
        delta.replay(rec.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
        if number % 2:
            delta.replay(rec.RemoveTopicRecord(topic_id=topic_id))
        images.append(delta.apply(OffsetAndEpoch(2 + number, 1)))
    assert isinstance(images[-1].topics.by_id, Layered)
    for number, image in enumerate(images):
        assert list(image.topics.by_name) == [name for at, name in enumerate(names) if at >= number or not at % 2]
        assert [topic.id for topic in image.topics.by_name.values()] == list(image.topics.by_id)
        leaders = [topic.partitions[0].leader for topic in image.topics.by_id.values()]
        assert leaders.count(2) == (number + 1) // 2
