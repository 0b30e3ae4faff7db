"""Some of Kafka's command-line tools with their options and output, for scripts that run in the image of ``image/``.

``python -m kbroker.tools.cli.kafka_tools kafka-topics --bootstrap-server localhost:9092 --list``. A JVM is not there;
what health checks and set-up scripts ask for is done by kbroker's client. An option that is not served is an error.
kbroker's own commands are in `kbroker.tools.cli`. Begin with `__main__`, which has the table of tools.
"""

from __future__ import annotations
