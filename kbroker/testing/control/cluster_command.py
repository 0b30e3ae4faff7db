"""``kbroker up --control``: the cluster of a test, with its verbs over HTTP.

The nodes are those of ``kbroker up``, as processes that the verbs may end; none is started again by itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress

from kbroker.testing.cluster import RunningCluster
from kbroker.testing.control.server import ControlServer
from kbroker.testing.script import FaultScript
from kbroker.tools.cli.cluster_plan import READY
from kbroker.tools.cli.common import told_to_stop
from kbroker.tools.cli.control_options import ControlOptions
from kbroker.tools.cli.log_output import set_up_logging
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.registry_beside import RegistryBeside
from kbroker.tools.cli.start import parse_overrides
from kbroker.tools.cli.up import announcement, data_of


def run(arguments: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT."""
    if arguments.cores > 1:
        raise UsageError("--cores does not go with --control or --faults: give more nodes by -n")
    for option in ("restart", "console", "explorer"):
        if getattr(arguments, option) not in (None, False):
            raise UsageError(f"--{option} does not go with --control or --faults: kbroker {_INSTEAD[option]}")
    set_up_logging("warning")
    options, registry = ControlOptions.of(arguments), RegistryBeside.of(arguments)
    cluster = RunningCluster(
        arguments.nodes,
        parse_overrides(arguments.override),
        port=arguments.port,
        first_id=arguments.first_node_id,
        data_dir=data_of(arguments),
        secure=arguments.secure,
    )
    try:
        FaultScript(cluster).begin(options.faults)
        with told_to_stop(), cluster:
            _serve(cluster, options, registry, arguments.until_eof)
    except KeyboardInterrupt:  # while it started
        pass
    return 0


def _serve(cluster: RunningCluster, options: ControlOptions, registry: RegistryBeside | None, until_eof: bool) -> None:
    address, token, _ = options
    secure, bootstrap = cluster.secure_setup, cluster.bootstrap_servers
    with ExitStack() as stack:
        if address is not None:
            server = stack.enter_context(ControlServer(cluster, address, token))
            _say([f"kbroker control: {server.url}"])
        if registry is not None:
            admin = None if secure is None else secure.admin()
            stack.enter_context(registry.serving(bootstrap, admin, cluster))
        _say([f"{READY} {bootstrap}"] if secure is None else announcement(secure, bootstrap))
        if until_eof:
            threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
        with suppress(KeyboardInterrupt):  # to a clean stop
            threading.Event().wait()


def _stop_at_end_of_input() -> None:
    """Read standard input to its end, and stop as on SIGTERM."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


_INSTEAD = {
    "restart": "has the verb /nodes/{node}/start",
    "console": "console serves a page about the cluster",
    "explorer": "has the verb /requests",
}


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)
