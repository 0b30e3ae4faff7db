"""KRaft: the metadata quorum, its log and snapshots, the metadata image, and the controller.

Pure code; the tasks, connections and threads that drive it are in `kbroker.node.controller`. Begin with `image`, what
every node knows of the cluster, then `controller`, which decides on changes, and `raft`, which replicates them.
"""
