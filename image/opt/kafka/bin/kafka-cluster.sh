#!/bin/sh
exec python3 -P -m kbroker.cli.kafka_tools kafka-cluster "$@"
