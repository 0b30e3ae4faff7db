"""A broker's standing with the active controller, which may be in the same process."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_harness import run
from quorum_harness import three_nodes


def test_a_broker_that_fails_to_leave_stops_all_the_same(tmp_path: Path) -> None:
    """(Without that it serves on for ever, and so does this test.)"""

    async def mistaken() -> None:
        raise LookupError("a mistake")

    async def test() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with three_nodes(tmp_path) as cluster:
                lifecycle = cluster.nodes[3].lifecycle
                assert lifecycle is not None
                lifecycle.leave = mistaken  # type: ignore[method-assign]
                await cluster.stop(3)
        assert caught.group_contains(LookupError, match="a mistake")

    run(test)
