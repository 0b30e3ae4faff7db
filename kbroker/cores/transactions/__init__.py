"""The transaction coordinator, pure: transactions of transactional ids, and the records that hold them.

Producers' epochs in the logs of partitions are judged by `kbroker.log.producer_state`; markers are sent by
`kbroker.node.coordinators.transaction_markers`. Begin with `transaction`, then `coordinator`.
"""
