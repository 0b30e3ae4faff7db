"""KRaft: the metadata quorum, its log and snapshots, the metadata image, and the controller. Pure code."""
