"""The assignor ``sticky``: what always holds, and what stays where it was."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.groups.streams.assignors.spec import AssignmentConfigs, GroupSpec, MemberSpec
from kbroker.cores.groups.streams.assignors.sticky import StickyTaskAssignor
from kbroker.cores.groups.streams.configured_topology import ConfiguredSubtopology, InternalTopic
from kbroker.cores.groups.streams.tasks import NO_TASKS, TaskId, Tasks


def subtopologies(*tasks: tuple[int, bool]) -> dict[str, ConfiguredSubtopology]:
    """By number: how many tasks, and whether they have state."""
    changelog = (InternalTopic("c", 1, 1, ()),)
    return {
        str(number): ConfiguredSubtopology(count, ("t",), (), (), changelog if is_stateful else ())
        for number, (count, is_stateful) in enumerate(tasks)
    }


def assign(
    processes: Mapping[str, str],
    topology: Mapping[str, ConfiguredSubtopology],
    *,
    current: Mapping[str, Tasks] | None = None,
    offsets: Mapping[str, Mapping[TaskId, int]] | None = None,
    standbys: int = 0,
) -> Mapping[str, Tasks]:
    """``processes`` by member id."""
    members = {
        member_id: MemberSpec(
            process_id=process_id,
            instance_id=None,
            rack_id=None,
            client_tags={},
            current=(current or {}).get(member_id, NO_TASKS),
            task_offsets=(offsets or {}).get(member_id, {}),
            task_end_offsets={},
        )
        for member_id, process_id in processes.items()
    }
    return StickyTaskAssignor().assign(GroupSpec(members, AssignmentConfigs(standbys)), topology)


def check(
    assigned: Mapping[str, Tasks],
    processes: Mapping[str, str],
    topology: Mapping[str, ConfiguredSubtopology],
    standbys: int,
) -> None:
    """Each task is active once; a process has a task in one role; standbys follow what has state, as many as fit."""
    tasks = {TaskId(name, index) for name, each in topology.items() for index in range(each.number_of_tasks)}
    active = [task for each in assigned.values() for task in each.active]
    assert sorted(active) == sorted(tasks)
    by_process: dict[str, list[TaskId]] = {process_id: [] for process_id in processes.values()}
    for member_id, each in assigned.items():
        by_process[processes[member_id]] += [*each.active, *each.standby]
    for held in by_process.values():
        assert len(held) == len(set(held))
    for task in tasks:
        followers = sum(task in each.standby for each in assigned.values())
        wanted = min(standbys, len(by_process) - 1) if topology[task.subtopology_id].is_stateful else 0
        assert followers == wanted


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("PQRS"), min_size=1),
    st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=3),
    st.integers(0, 2),
    st.data(),
)
def test_any_group(
    processes: dict[str, str], shape: list[tuple[int, bool]], standbys: int, data: st.DataObject
) -> None:
    topology = subtopologies(*shape)
    first = assign(processes, topology, standbys=standbys)
    check(first, processes, topology, standbys)
    total = sum(each.number_of_tasks for each in topology.values())
    if not standbys and len(set(processes.values())) == len(processes):
        counts = [len(each.active) for each in first.values()]
        assert max(counts) - min(counts) <= 1
        assert assign(processes, topology, current=first) == first
    gone = data.draw(st.sets(st.sampled_from(sorted(processes))))
    later = {member_id: each for member_id, each in processes.items() if member_id not in gone}
    later |= data.draw(st.dictionaries(st.sampled_from("xyz"), st.sampled_from("PQT"), min_size=0 if later else 1))
    second = assign(later, topology, current=first, standbys=standbys)
    check(second, later, topology, standbys)
    assert sum(len(each.active) for each in second.values()) == total


def test_tasks_of_a_subtopology_spread_over_processes() -> None:
    assigned = assign({"a": "P", "b": "Q"}, subtopologies((2, False), (2, False)))
    assert assigned["a"].active == {TaskId("0", 0), TaskId("1", 0)}
    assert assigned["b"].active == {TaskId("0", 1), TaskId("1", 1)}


def test_a_process_with_more_threads_has_more_tasks() -> None:
    assigned = assign({"a1": "A", "a2": "A", "b": "B"}, subtopologies((6, False)))
    assert {member_id: len(each.active) for member_id, each in assigned.items()} == {"a1": 2, "a2": 2, "b": 2}


def test_a_new_member_takes_only_its_share() -> None:
    topology = subtopologies((4, True))
    first = assign({"a": "A"}, topology)
    second = assign({"a": "A", "b": "B"}, topology, current=first)
    assert second["a"].active < first["a"].active
    assert len(second["b"].active) == 2


def test_a_standby_takes_over() -> None:
    topology = subtopologies((2, True))
    processes = {"a": "A", "b": "B", "c": "C"}
    first = assign(processes, topology, standbys=1)
    gone = next(member_id for member_id, each in first.items() if each.active)
    (task,) = first[gone].active
    follower = next(member_id for member_id, each in first.items() if task in each.standby)
    rest = {member_id: each for member_id, each in processes.items() if member_id != gone}
    second = assign(rest, topology, current={member_id: first[member_id] for member_id in rest}, standbys=1)
    assert task in second[follower].active or len(first[follower].active) == 1


def test_state_on_disk_brings_a_task_back() -> None:
    tasks = {TaskId("0", 1): 50}
    assigned = assign({"a": "A", "b": "B"}, subtopologies((2, True)), offsets={"a": tasks})
    assert assigned["a"].active == {TaskId("0", 1)}


def test_of_two_states_on_disk_the_newer_counts() -> None:
    task = TaskId("0", 0)
    assigned = assign({"a": "A", "b": "B"}, subtopologies((1, True)), offsets={"a": {task: 5}, "b": {task: 9}})
    assert assigned["b"].active == {task}
