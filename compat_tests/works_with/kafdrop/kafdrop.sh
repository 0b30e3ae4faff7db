# The pages are at http://127.0.0.1:$PORT. KAFKA_PROPERTIES_FILE may name a file with security.protocol, sasl.* and
# ssl.*, as Kafka's own tools take it.
exec java -Xmx256m -jar "$KAFDROP_JAR" --server.address=127.0.0.1 --server.port="$PORT" \
    --management.server.port="$PORT" --kafka.brokerConnect="$KAFKA"
