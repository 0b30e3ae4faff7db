"""Random requests that build on each other: topics, their logs, transactions, groups, and what security has.

A request is told once for both brokers; what each of them has given out itself (ids, epochs, members) is filled in from
its `World`. Wrong values stand beside right ones everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.wire_differential.sequence_topics import TopicSteps
from compat_tests.wire_differential.sequence_world import Step, Told, World

_ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


class Sequence(TopicSteps):
    """The requests of one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._weights: dict[Callable[[], Step], int] = {
            self._create_topics: 5,
            self._delete_topics: 2,
            self._create_partitions: 1,
            self._alter_configs: 3,
            self._describe_configs: 2,
            self._describe_topics: 2,
            self._produce: 10,
            self._fetch: 5,
            self._list_offsets: 3,
            self._delete_records: 3,
            self._leader_epochs: 1,
            self._describe_producers: 2,
            self._init_producer_id: 6,
            self._add_partitions: 4,
            self._add_offsets: 3,
            self._commit_in_transaction: 3,
            self._end: 5,
            self._describe_transactions: 2,
            self._join: 4,
            self._sync: 3,
            self._heartbeat: 2,
            self._leave: 2,
            self._commit: 4,
            self._fetch_offsets: 4,
            self._delete_offsets: 1,
            self._describe_groups: 2,
            self._delete_groups: 1,
            self._list: 2,
            self._alter_credentials: 2,
            self._describe_credentials: 1,
            self._create_acls: 2,
            self._delete_acls: 1,
            self._describe_acls: 1,
            self._alter_quotas: 2,
            self._describe_quotas: 1,
        }

    def next(self) -> Step:
        """The next request; it may depend on what was learned of the answers before."""
        if not self._made:
            return self._create_topics()
        if not self._begun and self._chance(0.2):
            return self._init_producer_id()
        return self._rng.choices(list(self._weights), list(self._weights.values()))[0]()

    # --- transactions -------------------------------------------------------------------------------------------

    def _producer(self) -> tuple[str, Callable[[World], Told]]:
        """A transactional id, and its producer: the true one, or another epoch or id."""
        transactional_id, shift = self._id(), self._pick(0, 0, 0, 0, 0, 0, -1, 1)
        wrong = self._chance(0.05)

        def fields(world: World) -> Told:
            producer_id, epoch = world.producers.get(transactional_id, (4_000_000, 0))
            return {"producer_id": 4_000_001 if wrong else producer_id, "producer_epoch": epoch + shift}

        return transactional_id, fields

    def _init_producer_id(self) -> Step:
        transactional_id = self._pick(None, "", *self._ids, *self._ids, *self._ids)
        recovers = self._chance(0.2)
        timeout_ms = self._pick(0, 2**31 - 1) if self._chance(0.1) else 60_000
        label = transactional_id or self._loose

        def told(world: World) -> Told:
            claimed = {}
            if recovers:
                producer_id, epoch = world.producers.get(label, (4_000_000, 0))
                claimed = {"producer_id": producer_id, "producer_epoch": epoch}
            return {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, **claimed}

        def learn(world: World, answer: Any) -> None:
            if not answer.error_code:
                world.producers[label] = answer.producer_id, answer.producer_epoch
                self._begun |= {label} - {self._loose}
                self._ends = {key: end for key, end in self._ends.items() if key[0] != label}

        return self._step("InitProducerId", told, learn=learn)

    def _add_partitions(self) -> Step:
        transactional_id, producer = self._producer()
        topic = self._topic()
        partitions = [self._partition(topic)]

        def told(world: World) -> Told:
            who = {f"v3_and_below_{name}": value for name, value in producer(world).items()}
            topics = [{"name": topic, "partitions": partitions}]
            return {"v3_and_below_transactional_id": transactional_id, **who, "v3_and_below_topics": topics}

        step = self._step("AddPartitionsToTxn", told)
        step.version = min(step.version, 3)  # of clients
        return step

    def _add_offsets(self) -> Step:
        transactional_id, producer = self._producer()
        group = self._group()
        return self._step(
            "AddOffsetsToTxn",
            lambda world: {"transactional_id": transactional_id, "group_id": group, **producer(world)},
        )

    def _commit_in_transaction(self) -> Step:
        transactional_id, producer = self._producer()
        group, topics = self._group(), self._offsets()
        member = self._member(group) if self._chance(0.3) else lambda world: {}

        def told(world: World) -> Told:
            fields = {"transactional_id": transactional_id, "group_id": group, "topics": topics(world)}
            return {**fields, **producer(world), **_committing(member(world))}

        return self._step("TxnOffsetCommit", told, 3, changes_groups=True)

    def _end(self) -> Step:
        transactional_id, producer = self._producer()
        committed = self._chance(0.5)

        def told(world: World) -> Told:
            return {"transactional_id": transactional_id, "committed": committed, **producer(world)}

        def learn(world: World, answer: Any) -> None:
            if not answer.error_code and answer.producer_id >= 0:
                world.producers[transactional_id] = answer.producer_id, answer.producer_epoch
                self._ends = {key: end for key, end in self._ends.items() if key[0] != transactional_id}

        return self._step("EndTxn", told, learn=learn, ends_transaction=transactional_id)

    def _describe_transactions(self) -> Step:
        return self._step("DescribeTransactions", {"transactional_ids": [self._id()]})

    # --- groups -------------------------------------------------------------------------------------------------

    def _member(self, group: str) -> Callable[[World], Told]:
        """A member of a group: the one that has joined, or another id or generation."""
        shift, wrong = self._pick(0, 0, 0, 0, 1, -1), self._chance(0.08)

        def fields(world: World) -> Told:
            member_id = "nobody" if wrong else world.members.get(group, "")
            return {"member_id": member_id, "generation_id": world.generations.get(group, -1) + shift}

        return fields

    def _join(self) -> Step:
        group = self._group()
        member = self._member(group)
        protocols = self._pick(["own"], []) if self._chance(0.15) else ["range"]
        fields = {
            "group_id": group,
            "session_timeout_ms": 1 if self._chance(0.1) else 1_800_000,
            "rebalance_timeout_ms": 1_800_000,
            "protocol_type": self._pick("connect", "") if self._chance(0.15) else "consumer",
            "protocols": [{"name": name, "metadata": b"m"} for name in protocols],
        }
        is_first = group not in self._joined  # a second member would wait for the first

        def told(world: World) -> Told:
            return {**fields, "member_id": "" if is_first else member(world)["member_id"]}

        def learn(world: World, answer: Any) -> None:
            if answer.error_code in (0, 79):
                self._joined.add(group)
                world.joined(group, answer.member_id, answer.generation_id)

        return self._step("JoinGroup", told, 1, learn=learn)

    def _sync(self) -> Step:
        group = self._group()
        member = self._member(group)
        names = self._pick((None, None), ("consumer", "range"), ("consumer", "own"), ("connect", "range"))

        def told(world: World) -> Told:
            who = member(world)
            assignments = [{"member_id": who["member_id"], "assignment": b"mine"}]
            fields = {"group_id": group, "protocol_type": names[0], "protocol_name": names[1]}
            return {**fields, **who, "assignments": assignments}

        return self._step("SyncGroup", told)

    def _heartbeat(self) -> Step:
        group = self._group()
        member = self._member(group)
        return self._step("Heartbeat", lambda world: {"group_id": group, **member(world)})

    def _leave(self) -> Step:
        group = self._group()
        member = self._member(group)

        def told(world: World) -> Told:
            member_id = member(world)["member_id"]
            return {"group_id": group, "member_id": member_id, "members": [{"member_id": member_id}]}

        def learn(world: World, answer: Any) -> None:
            if not answer.error_code and not any(each.error_code for each in answer.members):
                self._joined.discard(group)

        return self._step("LeaveGroup", told, learn=learn)

    def _offsets(self) -> Callable[[World], list[Told]]:
        topic = self._topic()
        partition = {
            "partition_index": self._partition(topic),
            "committed_offset": self._pick(0, 1, 7, -1),
            "committed_metadata": self._pick("", None, "note", "x" * 5000) if self._chance(0.3) else "",
        }
        return lambda world: [{"name": topic, "topic_id": world.topic_id(topic), "partitions": [partition]}]

    def _commit(self) -> Step:
        group, topics = self._group(), self._offsets()
        alone = self._chance(0.4)
        member = self._member(group)

        def told(world: World) -> Told:
            who = {"member_id": "", "generation_id": -1} if alone else member(world)
            return {"group_id": group, "topics": topics(world), **_committing(who)}

        return self._step("OffsetCommit", told, 2, changes_groups=True)

    def _fetch_offsets(self) -> Step:
        group, topic, is_all, stable = self._group(), self._topic(), self._chance(0.3), self._chance(0.5)
        indexes = [self._partition(topic)]

        def told(world: World) -> Told:
            topics = [{"name": topic, "topic_id": world.topic_id(topic), "partition_indexes": indexes}]
            older = [{"name": topic, "partition_indexes": indexes}]
            groups = [{"group_id": group, "topics": None if is_all else topics}]
            fields = {"group_id": group, "topics": None if is_all else older}
            return {**fields, "groups": groups, "require_stable": stable}

        return self._step("OffsetFetch", told, 2)

    def _delete_offsets(self) -> Step:
        topic = self._topic()
        partition = {"partition_index": self._partition(topic)}
        topics = [{"name": topic, "partitions": [partition]}]
        return self._step("OffsetDelete", {"group_id": self._group(), "topics": topics})

    def _describe_groups(self) -> Step:
        return self._step("DescribeGroups", {"groups": [self._group()]})

    def _delete_groups(self) -> Step:
        return self._step("DeleteGroups", {"groups_names": [self._group()]})

    def _list(self) -> Step:
        """All groups, or all transactions."""
        if self._chance(0.5):
            states = self._pick([], ["Empty", "Stable"], ["nonsense"])
            return self._step("ListGroups", {"states_filter": states}, 4)
        return self._step("ListTransactions", {"state_filters": self._pick([], ["Ongoing"], ["Empty"], ["nonsense"])})

    # --- security -----------------------------------------------------------------------------------------------

    def _user(self) -> str:
        return self.prefix + str(self._pick("ann", "bob"))

    def _alter_credentials(self) -> Step:
        upsertions = [
            {
                "name": "" if self._chance(0.05) else self._user(),
                "mechanism": self._pick(1, 1, 2, 2, 7),
                "iterations": self._pick(4096, 4096, 8192, 1, 20_000),
                "salt": self._pick(b"salt", b""),
                "salted_password": self._pick(b"p" * 32, b"p" * 32, b""),
            }
            for _ in range(self._pick(0, 1, 1, 2))
        ]
        deletions = [{"name": self._user(), "mechanism": self._pick(1, 2, 0)} for _ in range(self._pick(0, 0, 1))]
        told = {"upsertions": upsertions, "deletions": deletions}
        return self._step("AlterUserScramCredentials", told, changes_metadata=True)

    def _describe_credentials(self) -> Step:
        return self._step("DescribeUserScramCredentials", {"users": [{"name": self._user()}]})

    def _acl(self) -> Told:
        return {
            "resource_type": self._pick(2, 2, 3, 4, 5, 1),
            "resource_name": self.prefix + str(self._pick("a", "b")),
            "resource_pattern_type": self._pick(3, 3, 4, 1),
            "principal": self._pick("User:ann", "User:*", "ann", ""),
            "host": self._pick("*", "10.0.0.1", ""),
            "operation": self._pick(2, 3, 4, 8, 1, 99),
            "permission_type": self._pick(2, 3, 1),
        }

    def _create_acls(self) -> Step:
        creations = [self._acl() for _ in range(self._pick(1, 2))]
        return self._step("CreateAcls", {"creations": creations}, changes_metadata=True)

    def _acl_filter(self) -> Told:
        name = self.prefix + str(self._pick("a", "b", "c"))
        narrow = {"resource_type_filter": self._pick(1, 2, 3), "principal_filter": self._pick(None, "User:ann")}
        return {**_ANY_ACL, **narrow, "resource_name_filter": name, "pattern_type_filter": self._pick(1, 2, 3, 4)}

    def _delete_acls(self) -> Step:
        return self._step("DeleteAcls", {"filters": [self._acl_filter()]}, changes_metadata=True)

    def _describe_acls(self) -> Step:
        return self._step("DescribeAcls", self._acl_filter())

    def _alter_quotas(self) -> Step:
        kinds = self._pick(["user"], ["client-id"], ["user", "client-id"], ["ip"], ["nonsense"], [])
        entity = [{"entity_type": kind, "entity_name": self._user()} for kind in kinds]
        operation = {
            "key": self._pick("producer_byte_rate", "consumer_byte_rate", "request_percentage", "nonsense"),
            "value": self._pick(1000.0, 0.0, -1.0, 7.5),
            "remove": self._chance(0.2),
        }
        told = {"entries": [{"entity": entity, "ops": [operation]}], "validate_only": self._chance(0.1)}
        return self._step("AlterClientQuotas", told, changes_metadata=True)

    def _describe_quotas(self) -> Step:
        component = {"entity_type": self._pick("user", "client-id", "ip"), "match_type": 0, "match": self._user()}
        return self._step("DescribeClientQuotas", {"components": [component], "strict": self._chance(0.5)})


def _committing(member: Told) -> Told:
    """A member's fields under the names that commits have for them."""
    names = {"member_id": "member_id", "generation_id": "generation_id_or_member_epoch"}
    return {names[name]: value for name, value in member.items()}
