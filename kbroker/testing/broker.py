"""A broker on a thread of its own, in this process."""

from __future__ import annotations

import gc
import logging
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, with_provided
from kbroker.errors import FatalError
from kbroker.testing.access import Accessible, ClientAccess
from kbroker.testing.forked import keep_from_children
from kbroker.testing.one_node import OneNode

if TYPE_CHECKING:
    import trio

    from kbroker.client.security import ClientSecurity
    from kbroker.testing.clock import MovedClock
    from kbroker.testing.rules import GivenRules
    from kbroker.testing.security import BrokerSecurity, Protocol

__all__ = ["RunningBroker", "running_broker"]

_START_SECONDS = 120.0
_STOP_SECONDS = 180.0
_LEFT_SECONDS = 5.0


class RunningBroker(Accessible, OneNode):
    """A single-node broker on its own thread.

    ``properties`` are Kafka's (``{"num.partitions": "3"}``), over those of a development node. ``data_dir`` is kept
    when it is given, so that a second broker finds the data of the first; without it a temporary directory is
    used and removed. ``port`` 0 picks a free one.

    ``security`` (``"ssl"``, ``"sasl_plaintext"`` or ``"sasl_ssl"``) makes the listener a secure one, with certificates
    of its own. ``users`` maps names to passwords, for PLAIN and both SCRAM mechanisms; by default there are ``admin``
    and ``alice`` (``admin-secret``, ``alice-secret``). With ``super_users`` there is an authorizer, and the others may
    do what ACLs allow. :meth:`client_properties` and its siblings are what clients need.

    ``authorizer``, ``authenticator`` (of PLAIN), ``scram_credentials``, ``token_validator`` (of OAUTHBEARER),
    ``principal_builder`` and ``quota_callback`` are rules in Python, as callables or objects (:mod:`kbroker.rules`),
    and so are ``share_assignor``, ``create_topic_policy``, ``alter_config_policy`` and ``topology_descriptions``.
    ``streams_assignors`` and ``consumer_assignors`` have assignors under the names by which groups choose them; the
    first is the default, and Kafka's own are there as well. All are called in other threads than the test's.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data_dir: str | Path | None = None,
        security: Protocol | None = None,
        users: Mapping[str, str] | None = None,
        super_users: Sequence[str] | None = None,
        authorizer: object = None,
        authenticator: object = None,
        principal_builder: object = None,
        quota_callback: object = None,
        token_validator: object = None,
        scram_credentials: object = None,
        streams_assignors: Mapping[str, object] | None = None,
        consumer_assignors: Mapping[str, object] | None = None,
        share_assignor: object = None,
        create_topic_policy: object = None,
        alter_config_policy: object = None,
        topology_descriptions: object = None,
    ) -> None:
        OneNode.__init__(self)
        if security is None and not (users is None and super_users is None):
            raise ValueError("users and super_users need security")
        self._security: BrokerSecurity | None = None
        if security is not None:
            from kbroker.testing.security import BrokerSecurity

            if authorizer is not None and super_users is None:
                super_users = ()  # the broker itself is one
            self._security = BrokerSecurity(security, users, super_users)
            properties = {**self._security.properties(port), **(properties or {})}
        self._rules: GivenRules | None = None
        given = (
            *(authorizer, authenticator, principal_builder, quota_callback, token_validator, scram_credentials),
            *(streams_assignors, consumer_assignors, share_assignor),
            *(create_topic_policy, alter_config_policy, topology_descriptions),
        )
        if any(rule is not None for rule in given):
            from kbroker.testing.rules import GivenRules, Rules

            rules = Rules(*given)
            own = None if self._security is None else self._security.own_login
            self._rules = GivenRules(rules, security, own)
            properties = {**(properties or {}), **self._rules.properties}
        self._temporary = tempfile.mkdtemp(prefix="kbroker-") if data_dir is None else None
        self.data_dir = Path(data_dir if data_dir is not None else str(self._temporary))
        """Where the broker's files are."""
        self.logs: list[logging.LogRecord] = []
        """The broker's log, oldest line first; each broker of a process has its own."""
        self._claimed: list[int] = []
        try:
            self.config = _config(properties or {}, self.data_dir, port, self._claimed)
            """The configuration that the broker was started with."""
        except BaseException:
            self._clean_up()
            raise
        self._ports: dict[str, tuple[str, int]] = {}
        self._prepare()

    def _prepare(self) -> None:
        self._started = threading.Event()
        self._is_wanted = True
        self._error: BaseException | None = None
        self._token = None
        self._cancel_scope: trio.CancelScope | None = None
        self._node = None
        self._thread = threading.Thread(target=self._run, name="kbroker", daemon=True)

    def start(self) -> RunningBroker:
        """Start, and return once the broker serves; raises what kept it from starting. Does nothing while it runs."""
        if self.is_running:
            return self
        try:
            self._start()
        except BaseException:  # Ctrl-C, too: nobody else would end it
            self._is_wanted = False
            self._started.wait(_LEFT_SECONDS)  # its thread may not even have an identity yet
            with suppress(Exception):
                self.stop()
            raise
        return self

    def _start(self) -> None:
        collects = gc.isenabled()
        gc.disable()  # what start-up makes lives as long as the broker: there is no garbage in it
        try:
            self._thread.start()
            started = self._started.wait(_START_SECONDS)
        finally:
            if collects:
                gc.enable()
        if not started:
            raise TimeoutError(f"the broker did not start within {_START_SECONDS:.0f} s")
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._security is not None:
            self._security.add_users(self.bootstrap_servers)

    def stop(self) -> None:
        """Stop cleanly, as on SIGTERM; does nothing when the broker is already down."""
        try:
            self._stop_registry()
            self._end()
        finally:
            self._clean_up()

    def restart(self) -> None:
        """Stop cleanly and start again, at the same addresses and with the same data. Faults stay until undone."""
        ports = dict(self._ports)
        self._end()
        listeners = [
            (listener, ports[listener.name][1] if listener.name in ports else listener.port)
            for listener in self.config.listeners
        ]
        text = ",".join(
            f"{listener.name}://[{listener.host}]:{port}"
            if ":" in listener.host
            else f"{listener.name}://{listener.host}:{port}"
            for listener, port in listeners
        )
        self.config = self.config.with_properties({"listeners": text})
        self._prepare()
        self.start()

    def _end(self) -> None:
        self._close_clients()
        if self._thread.is_alive() and self._token is not None and self._cancel_scope is not None:
            import trio

            try:
                self._token.run_sync_soon(self._cancel_scope.cancel)
            except trio.RunFinishedError:
                pass
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                raise TimeoutError(f"the broker did not stop within {_STOP_SECONDS:.0f} s")
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    @property
    def own_ports(self) -> list[int]:
        """The ports of all its listeners."""
        return [port for _, port in self._ports.values()]

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._node is not None and self._thread.is_alive()

    def _own_security(self) -> ClientSecurity | None:
        return None if self._security is None else self._security.own_security()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's ``bootstrap.servers``."""
        return self.address(self.config.broker_listeners[0].name)

    @property
    def host(self) -> str:
        """Host of the first listener."""
        return self._ports[self.config.broker_listeners[0].name][0]

    @property
    def port(self) -> int:
        """Port of the first listener."""
        return self._ports[self.config.broker_listeners[0].name][1]

    def _access(self, user: str | None, mechanism: str) -> ClientAccess | None:
        return None if self._security is None else self._security.access(user, mechanism)

    @property
    def security(self) -> BrokerSecurity:
        """Certificates and users; ``ValueError`` of a broker without security."""
        if self._security is None:
            raise ValueError("the broker runs without security")
        return self._security

    def address(self, listener_name: str) -> str:
        """``host:port`` of a listener."""
        host, port = self._ports[listener_name]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __enter__(self) -> RunningBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._ports else "not started"
        return f"<kbroker {where}, data in {self.data_dir}>"

    def _clean_up(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self._security is not None:
            self._security.remove()
        if self._rules is not None:
            self._rules.remove()
        if self._claimed:
            from kbroker.tools.cli.port_claims import OWN

            while self._claimed:
                OWN.release(self._claimed.pop())

    def _run(self) -> None:
        import trio

        handler = _ThreadHandler(self.logs, threading.get_ident())
        logger = logging.getLogger("kbroker")
        logger.addHandler(handler)
        try:
            from kbroker.testing.clock import MovedClock
            from kbroker.tools.cli.storage import format_if_needed

            self._clock = self._clock or MovedClock()
            if self._is_wanted:
                format_if_needed(self.config)
                trio.run(self._serve, self._clock, clock=self._clock)
        except BaseException as error:
            from kbroker.tools.cli.start import find_fatal

            self._error = find_fatal(error) or error
            if self._started.is_set():  # what its clients see of that says nothing
                logger.critical("the broker has ended: %s", self._error)
        finally:
            logger.removeHandler(handler)
            self._started.set()

    async def _serve(self, clock: MovedClock) -> None:
        import trio

        from kbroker.node.broker import Broker

        async with trio.open_nursery() as nursery:
            self._node = broker = Broker(self.config, clock.env())
            self._token = trio.lowlevel.current_trio_token()
            self._cancel_scope = nursery.cancel_scope
            if not self._is_wanted:
                return
            if self._fault_host is not None:
                self._fault_host.restore(broker)  # before it serves anybody
            await nursery.start(broker.run)
            self._ports = dict(broker.ports)
            keep_from_children(self)
            self._started.set()


class _ThreadHandler(logging.Handler):
    """Keeps the records of one thread."""

    def __init__(self, records: list[logging.LogRecord], thread: int) -> None:
        super().__init__()
        self._records = records
        self._thread = thread

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._records.append(record)


def _config(properties: Mapping[str, object], data_dir: Path, port: int, claimed: list[int]) -> BrokerConfig:
    """``claimed`` is told the ports that were chosen: none that the system gives to others while the broker is down."""
    from kbroker.tools.cli.cluster_plan import free_ports
    from kbroker.tools.cli.start import development_properties, with_controller_listener

    def chosen(found: re.Match[str]) -> str:
        claimed.extend(free_ports(1))
        return f"{found[1]}:{claimed[-1]}"

    given = {name: _text(name, value) for name, value in properties.items()}
    whole = with_controller_listener(development_properties(str(data_dir), port) | with_provided(given))
    # A port that is free there may be taken on another interface: there, the system is left to choose.
    whole["listeners"] = re.sub(r"(//(?:127\.0\.0\.1|localhost)):0(?=\s*(?:,|$))", chosen, whole["listeners"])
    return BrokerConfig.from_properties(whole)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise FatalError(f"{name}: expected text, a number or a truth value, not {type(value).__name__}")


running_broker = RunningBroker
"""``with running_broker() as broker``: a broker for the length of the block."""
