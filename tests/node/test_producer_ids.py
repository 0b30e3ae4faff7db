"""Producer ids at hand, and what a client hears when there are none."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.producer_ids import ProducerIdAllocator
from kbroker.raft_metadata.controller.producer_ids import ProducerIdBlock


class _Driver:
    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    async def allocate_producer_ids(self, broker_epoch: int) -> ProducerIdBlock:
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
def test_a_client_is_to_try_again_while_the_controller_grants_none(error: ErrorCode) -> None:
    driver = _Driver(ApiError(error), ProducerIdBlock(7000, 2))
    ids = ProducerIdAllocator(driver, 1, lambda: 5)  # type: ignore[arg-type]

    async def main() -> None:
        with pytest.raises(ApiError) as refused:
            await ids.next_id()
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [await ids.next_id(), ids.take()] == [7000, 7001]

    trio.run(main)
