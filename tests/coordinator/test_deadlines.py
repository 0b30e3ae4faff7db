"""The deadline queue against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.coordinator.deadlines import DeadlineQueue

KEYS = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), KEYS, st.integers(0, 50)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
    ),
    max_size=60,
)


@given(STEPS)
def test_behaves_like_a_dictionary_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    queue: DeadlineQueue[int] = DeadlineQueue()
    model: dict[int, int] = {}
    for action, key, time in steps:
        if action == "schedule":
            queue.schedule(key, time)
            model[key] = time
        elif action == "cancel":
            queue.cancel(key)
            model.pop(key, None)
        else:
            due = list(queue.pop_due(time))
            assert sorted(due) == sorted(key for key, deadline in model.items() if deadline <= time)
            assert [model[key] for key in due] == sorted(model[key] for key in due)
            for popped in due:
                del model[popped]
        assert queue.next_deadline() == min(model.values(), default=None)
        assert len(queue) == len(model)


def test_postponing_does_not_grow_the_heap() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for time in range(10_000):
        queue.schedule("member", time)
    assert len(queue._heap) == 1
