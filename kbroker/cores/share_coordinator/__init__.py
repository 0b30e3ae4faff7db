"""The share coordinator: keeps the state of share partitions in ``__share_group_state`` (KIP-932).

`coordinator` is one partition of that topic; `batches` merges states; `records` are what the log holds;
`redundant` finds the records that nobody needs any more.
"""
