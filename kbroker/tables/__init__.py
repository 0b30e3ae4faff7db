"""Topics as tables of Delta Lake and Iceberg, exactly once: what the command ``kbroker table`` does.

The libraries read and write tables. Here offset ranges are planned (`plan`), records become rows (`rows`,
`json_kinds`), and rows are committed together with how far they go (`follower`, into a `target`: `delta`,
`iceberg`), from a cluster or a log directory (`sources`); how a follower is, it writes
beside the table (`status`). Needs the extra ``kbroker[delta]`` or ``kbroker[iceberg]``;
nothing but the command imports this. Begin with `follower`.
"""
