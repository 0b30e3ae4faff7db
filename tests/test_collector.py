"""The garbage collector waits, and passes over what has survived it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kbroker.base import collector


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.enable()
    yield
    gc.unfreeze()
    if not enabled:
        gc.disable()


def test_it_goes_on_after_the_last_pause() -> None:
    with collector.paused():
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with collector.paused():
        pass
    assert not gc.isenabled(), "nobody had it on"


def test_what_survives_a_long_collection_is_not_looked_at_again() -> None:
    before = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    end = collector.freeze_survivors(long_seconds=1e9)
    gc.collect()
    end()
    assert gc.get_freeze_count() <= before, "a short one freezes nothing"
    end = collector.freeze_survivors(long_seconds=0)
    gc.collect(0)
    assert gc.get_freeze_count() <= before, "nor does one of the youngest"
    gc.collect()
    end()
    frozen = gc.get_freeze_count()
    assert frozen >= before + len(kept)
    kept.append([0])
    gc.collect()
    assert gc.get_freeze_count() <= frozen, "it is ended"
