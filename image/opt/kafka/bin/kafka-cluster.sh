#!/bin/sh
exec python3 -m kbroker.cli.kafka_tools kafka-cluster "$@"
