#!/bin/sh
# Kafka's kafka-storage: kbroker has its commands, with its options.
set -eu
case "${1-}" in
    format | info | random-uuid) exec kbroker "$@" ;;
esac
echo "kafka-storage: of its commands, kbroker has format, info and random-uuid" >&2
exit 1
