"""ListTransactions (key 66): the transactional ids that this node coordinates (KIP-664).

Served: 0 to 2. 1: duration_filter (KIP-994); 2: transactional_id_pattern (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.cores.groups.regex import compile_topic_regex
from kbroker.cores.transactions.coordinator import TransactionCoordinator
from kbroker.cores.transactions.transaction import STATES_BY_NAME
from kbroker.errors import ApiError
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


def _lists_of(response: ListTransactionsResponse) -> Iterator[list[TransactionState]]:
    yield response.transaction_states


@handler(ListTransactionsRequest, large_answers=LargeAnswers(_lists_of))
async def handle(request: ListTransactionsRequest, ctx: RequestContext) -> ListTransactionsResponse:
    """Every id that passes the filters and that the principal may describe; an empty filter lets all pass."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_topic_regex(request.transactional_id_pattern)
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code)
    producer_ids = set(request.producer_id_filters)
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    driver = ctx.services.transactions
    now_ms = driver.now_ms()

    def matching(core: TransactionCoordinator) -> list[TransactionState]:
        return [
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.state_name,
            )
            for transaction in core.transactions.values()
            if (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        ]

    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES_BY_NAME]
    )
    share = FairShare(ctx)
    for states_of_core in await driver.read_all(matching):
        for state in states_of_core:
            await share.next()
            name = state.transactional_id
            # Without a line in the audit log: nobody has named it.
            if may(ctx, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, audits_denial=False):
                response.transaction_states.append(state)
    return response
