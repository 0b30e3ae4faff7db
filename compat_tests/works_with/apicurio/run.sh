#!/bin/sh
# KAFKA: the brokers; PORT: where the registry listens; REGISTRY: the unpacked directory
export APICURIO_STORAGE_KIND=kafkasql
export APICURIO_KAFKASQL_BOOTSTRAP_SERVERS="$KAFKA"
export QUARKUS_HTTP_HOST=127.0.0.1 QUARKUS_HTTP_PORT="$PORT"
cd "$REGISTRY" && exec java -Xmx512m -jar quarkus-run.jar
