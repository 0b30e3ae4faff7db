"""A node's side of the metadata quorum: the driver of Raft, the controller's log, the images, the life of a broker.

What is decided is in `kbroker.raft_metadata`; what brokers do by a new image is in `kbroker.node.replicas`. Begin with
`metadata_plane`, the face of this room for the handlers, then `quorum`.
"""
