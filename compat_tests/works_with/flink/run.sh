#!/bin/sh
# KAFKA: the brokers; CHECKPOINTS: a directory; CLASSPATH='classes:jars/*'
exec java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    --add-opens java.base/java.util=ALL-UNNAMED --add-opens java.base/java.lang=ALL-UNNAMED Counts
