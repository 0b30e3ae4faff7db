# A single kbroker node. Build: docker build -t kbroker .
FROM python:3.11-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY kbroker kbroker
RUN pip install --no-cache-dir -c constraints.txt . \
    && useradd --system --create-home --home-dir /var/lib/kbroker kbroker \
    && install -d -o kbroker -g kbroker -m 0700 /var/lib/kbroker/data

USER kbroker
WORKDIR /var/lib/kbroker
VOLUME /var/lib/kbroker/data
EXPOSE 9092

# Inside the container every address is reachable; which ones the outside world reaches is the port mapping's choice.
ENTRYPOINT ["kbroker", "start", "--data-dir", "/var/lib/kbroker/data", "-o", "listeners=PLAINTEXT://0.0.0.0:9092"]
CMD ["-o", "advertised.listeners=PLAINTEXT://localhost:9092"]
STOPSIGNAL SIGTERM
