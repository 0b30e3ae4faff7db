#!/bin/sh
# JAR: Nessie; JAVA: Java 21 or later; PORT: where Nessie listens; AWS_*: the store, and its bucket BUCKET
s3=nessie.catalog.service.s3.default-options
exec "$JAVA" -Xmx512m -XX:+UseSerialGC \
    -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$PORT" -Dquarkus.management.enabled=false \
    -Dnessie.version.store.type=IN_MEMORY \
    -Dnessie.catalog.default-warehouse=lake -Dnessie.catalog.warehouses.lake.location="s3://$BUCKET/nessie" \
    -D$s3.endpoint="$AWS_ENDPOINT_URL" -D$s3.region="$AWS_REGION" -D$s3.path-style-access=true \
    -D$s3.access-key=urn:nessie-secret:quarkus:store \
    -Dstore.name="$AWS_ACCESS_KEY_ID" -Dstore.secret="$AWS_SECRET_ACCESS_KEY" \
    -jar "$JAR"
