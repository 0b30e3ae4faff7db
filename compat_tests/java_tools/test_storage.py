"""kafka-storage on the brokers' data directories."""

from __future__ import annotations

import pytest

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:1
listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1
controller.listener.names=CONTROLLER
"""


@feature("kafka-storage info")
def test_info(compare: Comparison) -> None:
    if compare.ours.broker.data_dir is None:
        pytest.skip("the data directory of the broker is not known")
    file = compare.file("storage.properties", f"{PROPERTIES}log.dirs={{data}}\n")
    compare.run("kafka-storage", "info", "-c", file)
    compare.run("kafka-storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file, exit=1)
    compare.run("kafka-storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file, "--standalone", exit=1)
    missing = compare.file("missing.properties", f"{PROPERTIES}log.dirs={{data}},{{dir}}/never\n")
    compare.run("kafka-storage", "info", "-c", missing, exit=1)
