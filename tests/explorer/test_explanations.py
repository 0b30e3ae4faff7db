"""Every API that is served, and every error that is answered, is explained in a sentence."""

from __future__ import annotations

import re

from kbroker.errors import ErrorCode
from kbroker.handlers.registration import BOTH, registrations
from kbroker.observe.explorer.explained import _tables, explain_api, explain_error
from kbroker.wire.registry import API_KEYS


def test_none_is_missing_and_none_is_left_over() -> None:
    apis, errors = _tables()
    assert {API_KEYS[key].name for key in registrations(BOTH)} <= apis.keys()
    assert apis.keys() == {api.name for api in API_KEYS.values()}
    assert errors.keys() == {code.name for code in ErrorCode if code != ErrorCode.NONE}


def test_each_is_one_sentence() -> None:
    for table in _tables():
        for text, kip in table.values():
            assert re.fullmatch(r"[A-Za-z].*[a-z0-9)]\.", text) and ". " not in text and len(text) <= 150, text
            assert 0 <= kip < 2000


def test_the_proposal_is_told() -> None:
    assert str(explain_api("ConsumerGroupHeartbeat")).endswith(" (KIP-848).")
    assert "join again" in explain_error(ErrorCode.REBALANCE_IN_PROGRESS).text
    assert str(explain_error(ErrorCode.INVALID_CONFIG)) == "A setting has a value that it cannot have."
