#!/bin/sh
# KAFKA: the brokers; PORT: Nessie's; AWS_*: the store
exec kbroker table follow orders -b "$KAFKA" --to iceberg:lake.orders --catalog "rest:http://127.0.0.1:$PORT/iceberg" \
    --store-options nessie.properties --schema orders.json --every 500ms "$@"
