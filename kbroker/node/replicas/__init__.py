"""The replicas of a node: partitions, their leaders and followers, the ISR, fetchers, moves between log directories.

What is decided about high watermark, ISR and fetch sessions is in `kbroker.cores.replication`; files are in
`kbroker.log`. Begin with `replica_manager`, then `partition`; `metadata_follower` acts upon each new image. A Produce
goes through `produce_writer`, a Fetch through `fetch_reader`.
"""
