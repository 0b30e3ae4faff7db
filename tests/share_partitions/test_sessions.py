"""The share sessions of a node: which groups have members, whatever sessions begin and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.share_partitions.sessions import ShareSession, ShareSessions
from kbroker.errors import ApiError, ErrorCode

GROUPS = MEMBERS = "abc"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(GROUPS), st.sampled_from(MEMBERS)), max_size=30))
def test_a_group_has_members_as_long_as_one_has_a_session(steps: list[tuple[bool, str, str]]) -> None:
    sessions = ShareSessions(limit=4)
    ever: list[ShareSession] = []
    for opens, group, member in steps:
        if not opens:
            for session in ever:
                if (session.group_id, session.member_id) == (group, member):
                    assert sessions.is_open(session) == sessions.close(session)
            continue
        try:
            ever.append(sessions.open(group, member, []))
        except ApiError as error:
            assert error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and len(sessions) == 4
        with_members = {session.group_id for session in sessions}
        assert [sessions.has_members(each) for each in GROUPS] == [each in with_members for each in GROUPS]


def test_a_session_in_place_of_another_takes_no_more_room() -> None:
    sessions = ShareSessions(limit=1)
    first = sessions.open("a", "m", [])
    assert sessions.open("a", "m", []) is sessions.find("a", "m") and not sessions.close(first)
    with pytest.raises(ApiError):
        sessions.open("b", "m", [])
    assert sessions.has_members("a") and sessions.close(sessions.find("a", "m")) and not sessions.has_members("a")
