"""The course of a lag, or of traffic, covers all that was looked at, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.tools.console.courses import MOST_COURSES, MOST_POINTS, Courses

LOOKS = st.lists(
    st.tuples(st.integers(0, 60_000), st.integers(0, 10**9), st.none() | st.floats(0, 1e6)), min_size=1, max_size=1200
)


@given(LOOKS)
def test_a_course_keeps_the_extent_and_the_peaks(looks: list[tuple[int, int, float | None]]) -> None:
    courses, now = Courses(), 1_700_000_000_000
    times = []
    for pause, lag, seconds in looks:
        now += pause
        times.append(now)
        courses.look("g", now, lag, seconds)
    points = courses.of("g")
    assert 0 < len(points) <= MOST_POINTS
    assert [point.at for point in points] == sorted(point.at for point in points)
    assert times[0] <= points[0].at
    assert points[-1] == (now, looks[-1][1], looks[-1][2]) or looks[-1][0] == 0
    assert max(point.amount for point in points) == max(lag for _, lag, _ in looks)
    known = [seconds for _, _, seconds in looks if seconds is not None]
    assert max((p.other for p in points if p.other is not None), default=None) == max(known, default=None)


def test_a_long_course_gets_coarser_and_does_not_lose_its_beginning() -> None:
    courses, begin = Courses(), 1_700_000_000_000
    for number in range(5_000):
        courses.look("g", begin + number * 4_000, number, number / 2)
    points = courses.of("g")
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS
    assert points[0].at - begin < 300_000 and points[-1] == (begin + 4_999 * 4_000, 4_999, 4_999 / 2)
    assert [point.at for point in courses.of("g", 3)] == [point.at for point in points[-3:]]


def test_groups_that_nobody_looks_at_are_forgotten() -> None:
    courses = Courses()
    for number in range(MOST_COURSES + 1):
        courses.look(f"g{number}", number, 1)
        courses.look("always", number, 1)
    assert courses.of("always") and courses.of(f"g{MOST_COURSES}") and not courses.of("g0")
