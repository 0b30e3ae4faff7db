# A kbroker node. Build: docker build -t kbroker .
# It takes its configuration as the image apache/kafka does: from KAFKA_* environment variables, CLUSTER_ID, and
# /mnt/shared/config/server.properties. Without any, it is a node on its own: docker run -p 127.0.0.1:9092:9092 kbroker
# Scripts that run in apache/kafka or confluentinc/cp-kafka, Testcontainers' among them, find here what they call: image/.
FROM python:3.11-slim
# Parts of kbroker that need other packages: docker build --build-arg EXTRAS=tls,metrics,console,schemas -t kbroker .
ARG EXTRAS=tls,metrics

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kbroker kbroker
COPY image/etc/kafka /etc/kafka
COPY image/etc/confluent /etc/confluent
COPY image/opt/kafka /opt/kafka
# The user has the id of apache/kafka's, so that volumes written by either can be opened by the other; the directories
# are those that its users mount volumes at. In confluentinc/cp-kafka the tools have no .sh, and stand in the path; scripts
# write into /etc/confluent/docker and /etc/kafka.
RUN pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" \
    && useradd --uid 1000 --create-home --home-dir /home/appuser appuser \
    && mkdir -p /bitnami/kafka/data /var/lib/kafka/data /tmp/kraft-combined-logs /tmp/kafka-logs /mnt/shared/config /etc/kafka/secrets \
    && chown appuser:appuser /bitnami/kafka /bitnami/kafka/data /var/lib/kafka/data /tmp/kraft-combined-logs /tmp/kafka-logs /mnt/shared/config \
    && chown -R appuser:appuser /etc/kafka /etc/confluent \
    && for tool in /opt/kafka/bin/*.sh; do ln -s "$tool" "/usr/local/bin/$(basename "$tool" .sh)"; done

USER appuser
WORKDIR /home/appuser
VOLUME ["/var/lib/kafka/data", "/mnt/shared/config"]
EXPOSE 9092

CMD ["/etc/kafka/docker/run"]
STOPSIGNAL SIGTERM
