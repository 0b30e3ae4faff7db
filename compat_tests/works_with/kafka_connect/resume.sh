for connector in lines-source lines-sink; do
    curl -sS --fail-with-body -X PUT "$CONNECT/connectors/$connector/resume"
done
