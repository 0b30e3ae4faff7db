"""Schemas of records: a schema registry is asked for them, and keys and values are decoded by them.

Begin with `decoder`, which decodes whole records: `wire_format` finds the schema's id in bytes, `registry` asks for
schemas and keeps some, `avro` and `protobuf` decode by one schema each. `settings` reads Confluent's properties. Avro
and Protobuf need the packages of ``kbroker[schemas]``, which are imported when the first such record comes. Records
themselves are read by `kbroker.client.reader`.
"""
