"""L2: the segmented log, in plain synchronous Python over the Disk interface."""
