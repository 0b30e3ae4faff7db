#!/bin/sh
# ./run.sh Invoices - KAFKA: the brokers; CLASSPATH='classes:jars/*'
exec java -Xmx256m "$1"
