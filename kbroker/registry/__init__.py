"""A schema registry beside a node: Confluent's API over HTTP, its schemas in the topic ``_schemas``.

Begin with `registry`, which has the operations. `state` is what the records of the topic say, `avro_compatibility`
whether one Avro schema reads what another has written, both pure; `formats` parses schemas; `store` reads the topic to
its end and appends to it; `server` is the side of HTTP. It is a client of the cluster: nothing of a node is known here
but its small HTTP server. Who asks registries is `kbroker.client.schemas`.
"""
