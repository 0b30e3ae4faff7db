# CONNECT is the address of any worker.
put="curl -sS --fail-with-body --retry 30 --retry-delay 1 --retry-all-errors -X PUT -H Content-Type:application/json"
$put "$CONNECT/connectors/lines-source/config" -d @source.json
$put "$CONNECT/connectors/lines-sink/config" -d @sink.json
