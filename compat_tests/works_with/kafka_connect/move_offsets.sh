# Lets the source read again from the byte POSITION of its file, and the sink from the OFFSET of the topic.
ask="curl -sS --fail-with-body --retry 30 --retry-delay 1 --retry-all-errors"

$ask -X PUT "$CONNECT/connectors/lines-source/stop"
$ask -X PATCH -H Content-Type:application/json "$CONNECT/connectors/lines-source/offsets" -d '{"offsets": [
  {"partition": {"filename": "'"$FOLDER"'/in.txt"}, "offset": {"position": '"$POSITION"'}}]}'

$ask -X PUT "$CONNECT/connectors/lines-sink/stop"
$ask -X PATCH -H Content-Type:application/json "$CONNECT/connectors/lines-sink/offsets" -d '{"offsets": [
  {"partition": {"kafka_topic": "lines", "kafka_partition": 0}, "offset": {"kafka_offset": '"$OFFSET"'}}]}'
