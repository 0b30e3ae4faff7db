"""The metadata quorum: Raft without IO, its log, snapshots and messages (KIP-595, KIP-630, KIP-853, KIP-996)."""
