"""Records as Hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from kbroker.wire.record_batch import Record

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FORMULAS = st.sampled_from(
    [b"=1+1", b"-5", b"'quoted", b"@x", b"\tx", b"\r\n", b'a,b"c\n', b"\0", b"\xff\xfe", b"null"]
)
DATA = st.none() | st.binary(max_size=20) | TEXTS.map(str.encode) | FORMULAS
TIMESTAMPS = st.integers(-1, 2**63 - 1)

RECORDS = st.builds(
    Record, st.integers(0, 2**63 - 1), TIMESTAMPS, DATA, DATA, st.lists(st.tuples(TEXTS, DATA), max_size=3).map(tuple)
)
PLACED = st.lists(st.tuples(st.integers(0, 1000), RECORDS), max_size=8)
"""Records with their partitions."""
