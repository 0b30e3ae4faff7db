# The pages are at http://127.0.0.1:$PORT.
exec java -jar "$KAFDROP_JAR" --server.address=127.0.0.1 --server.port="$PORT" --management.server.port="$PORT" \
    --kafka.brokerConnect="$KAFKA" --message.sendEnabled=true
