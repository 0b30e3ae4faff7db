# A schema registry on port 8081. Start it on several machines with the same brokers: they elect the one that writes.
export KARAPACE_KARAPACE_REGISTRY=true
export KARAPACE_BOOTSTRAP_URI="$KAFKA"
export KARAPACE_HOST="${HOST:-127.0.0.1}" KARAPACE_PORT="${PORT:-8081}"
export KARAPACE_ADVERTISED_HOSTNAME="$KARAPACE_HOST"
export KARAPACE_REPLICATION_FACTOR="${REPLICAS:-3}" KARAPACE_PRODUCER_ACKS=all
export KARAPACE_LOG_LEVEL=INFO
exec python -m karapace
