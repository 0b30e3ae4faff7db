# CONNECT is the address of any worker.
curl -sS --fail-with-body -X PUT -H Content-Type:application/json "$CONNECT/connectors/shop/config" -d @shop.json
