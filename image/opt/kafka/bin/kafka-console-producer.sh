#!/bin/sh
exec python3 -P -m kbroker.tools.cli.kafka_tools kafka-console-producer "$@"
