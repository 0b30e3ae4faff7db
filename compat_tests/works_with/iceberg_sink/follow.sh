#!/bin/sh
# KAFKA: the brokers; FOLDER: where the catalog and the tables of both are
exec kbroker table follow orders -b "$KAFKA" --to iceberg:lake.kbroker --catalog "sqlite:$FOLDER/catalog.db" \
    --value json --once
