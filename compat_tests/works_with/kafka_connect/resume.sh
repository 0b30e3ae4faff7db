ask="curl -sS --fail-with-body --retry 30 --retry-delay 1 --retry-all-errors"

for connector in lines-source lines-sink; do
    $ask -X PUT "$CONNECT/connectors/$connector/resume"
done
