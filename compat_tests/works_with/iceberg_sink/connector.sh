# CONNECT is the address of any worker.
curl -sS --fail-with-body --retry 30 --retry-delay 1 --retry-all-errors \
    -X PUT -H Content-Type:application/json "$CONNECT/connectors/iceberg-sink/config" -d @sink.json
