#!/bin/sh
# KAFKA: the brokers; STATE: a directory of this instance; CLASSPATH='classes:jars/*'
exec java -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn Totals
