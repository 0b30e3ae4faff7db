"""A producer of a simulated cluster that writes transactions to many partitions."""

from __future__ import annotations

import trio

from kbroker.sim.history import SimTransaction, SimTransactionState, make_value
from kbroker.sim.transaction_clients import Ending, TransactionalClient
from kbroker.types import TopicPartition


class TransactionalProducer:
    """Writes transactions, each with several flushes to some of its partitions, and commits or aborts them."""

    def __init__(
        self, number: int, requests: TransactionalClient, partitions: list[TopicPartition], interval: float
    ) -> None:
        self.number = number
        self.interval = interval
        """Seconds between two transactions, on average."""
        self.stopped = False
        self._requests = requests
        self._partitions = partitions
        self._count = 0

    async def run(self) -> None:
        """Write one transaction after the other until ``stopped``."""
        requests = self._requests
        rng, history = requests.client.rng, requests.history
        while not self.stopped:
            if not requests.is_ready and not await requests.initialize():
                continue
            transaction = history.begin(requests.name)
            stored = True
            for _ in range(rng.choice((1, 2, 3))):
                stored = await self._write_some(transaction)
                if not stored:
                    break
                await trio.sleep(rng.expovariate(4 / self.interval))
            if not stored:
                transaction.end(SimTransactionState.ABORTED)
                requests.drop()
            else:
                await self._end(transaction, commit=rng.random() < 0.7)
            await trio.sleep(rng.expovariate(1 / self.interval))

    async def _write_some(self, transaction: SimTransaction) -> bool:
        """Send batches to some partitions, several to each; whether they are stored."""
        requests = self._requests
        rng = requests.client.rng
        chosen = rng.sample(self._partitions, rng.randint(1, len(self._partitions)))
        if not await requests.add(chosen):
            return False
        sender = requests.sender()
        for _ in range(rng.choice((1, 2, 2 * len(chosen)))):
            tp = rng.choice(chosen)
            values = [make_value(self.number, self._count + n) for n in range(rng.choice((1, 1, 4)))]
            self._count += len(values)
            for value in values:
                requests.history.add(transaction, tp, value)
            sender.append(tp, requests.batch(tp, values), values)
        return await sender.flush()

    async def _end(self, transaction: SimTransaction, *, commit: bool) -> None:
        transaction.end(SimTransactionState.COMMITTING if commit else SimTransactionState.ABORTED)
        ending = await self._requests.end(commit=commit)
        if commit and ending is Ending.DONE:
            self._requests.history.committed(transaction)
        elif commit and ending is Ending.REFUSED:
            transaction.end(SimTransactionState.ABORTED)
