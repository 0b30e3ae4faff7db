#!/bin/sh
echo "kbroker has no ZooKeeper, as Apache Kafka 4 has none: let the container run in KRaft mode, e.g. by with_kraft()" >&2
exit 1
