#!/bin/sh
# KAFKA: the brokers; CLASSPATH='classes:jars/*'
exec java -Xmx256m Orders
