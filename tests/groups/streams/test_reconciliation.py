"""Tasks move from thread to thread of an application whose threads follow their orders late, leave, and come back."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.errors import ApiError
from tests.groups.streams.test_protocol import App, Told, shard
from tests.with_each import examples

PROCESSES = {"a": "first", "b": "first", "c": "second", "d": "third"}


class Thread(App):
    """A member that may take its time with what it is told."""

    told: tuple[Told, Told] = ({}, {})

    def beat(self, *, obeys: bool) -> None:
        """Send a heartbeat; with ``obeys`` take the tasks that it was told, and leave the others."""
        try:
            response = self.send()
        except ApiError:  # fenced: it starts over without tasks
            self.stop()
            return
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            tasks = (response.active_tasks, response.standby_tasks or [])
            active, standby = ({each.subtopology_id: each.partitions for each in role} for role in tasks)
            self.told = active, standby
        if obeys:
            self.active, self.standby = self.told

    def stop(self) -> None:
        self.epoch, self.active, self.standby, self.told = 0, {}, {}, ({}, {})


def tasks(told: Told) -> set[tuple[str, int]]:
    return {(name, partition) for name, partitions in told.items() for partition in partitions}


class Threads(RuleBasedStateMachine):
    """Four threads of three processes, and four tasks with a standby each."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = shard(assignment_interval_ms=0, num_standby_replicas=1)
        self.threads = {name: Thread(self.shard, name, process_id=process) for name, process in PROCESSES.items()}

    @rule(beats=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=8))
    def heartbeats(self, beats: list[tuple[str, bool]]) -> None:
        for name, obeys in beats:
            self.threads[name].beat(obeys=obeys)
            self.active_tasks_have_one_owner()
            self.a_process_has_a_task_in_one_role()

    @rule(name=st.sampled_from("abcd"))
    def leave(self, name: str) -> None:
        thread = self.threads[name]
        if thread.epoch:
            try:
                thread.leave()
            except ApiError:
                pass  # it was fenced, and has not heard of it
            thread.stop()

    @rule(name=st.sampled_from("abcd"))
    def restart(self, name: str) -> None:
        """A process that was killed comes back under the same id, with no task running."""
        self.threads[name].stop()

    @rule()
    def settle(self) -> None:
        """Members that follow their orders all get their targets."""
        for _ in range(8):
            for thread in self.threads.values():
                thread.beat(obeys=True)
        before = [(thread.epoch, thread.told) for thread in self.threads.values()]
        running = Counter(task for thread in self.threads.values() for task in tasks(thread.active))
        assert running == Counter({("0", partition): 1 for partition in range(4)})
        for thread in self.threads.values():
            thread.beat(obeys=True)
        assert before == [(thread.epoch, thread.told) for thread in self.threads.values()]
        assert len({thread.epoch for thread in self.threads.values()}) == 1

    @invariant()
    def active_tasks_have_one_owner(self) -> None:
        running = Counter(task for thread in self.threads.values() for task in tasks(thread.active))
        assert all(count == 1 for count in running.values()), running

    @invariant()
    def a_process_has_a_task_in_one_role(self) -> None:
        for process in set(PROCESSES.values()):
            threads = [each for each in self.threads.values() if each.process_id == process]
            roles = Counter(task for each in threads for task in (*tasks(each.active), *tasks(each.standby)))
            assert all(count == 1 for count in roles.values()), (process, roles)


TestThreads = Threads.TestCase
TestThreads.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_task_of_which_a_thread_is_late_to_change_the_role_is_not_given_to_another_thread() -> None:
    machine = Threads()
    machine.heartbeats([("a", False)])
    machine.leave("a")
    machine.heartbeats([("a", False), ("c", False), ("a", True)])
    machine.leave("c")
    machine.heartbeats([("a", False), ("b", False), ("a", False), ("b", True)])
    machine.settle()
