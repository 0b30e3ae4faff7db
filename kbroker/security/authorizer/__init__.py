"""Authorization: resources, operations and ACLs (Kafka's ``StandardAuthorizer``). Sans-IO.

Handlers do not ask an authorizer themselves: `kbroker.handlers.common.authorization` does. Begin with `types`, then
with `standard`.
"""
