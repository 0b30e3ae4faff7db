"""A node's own standing with the active controller: registration and heartbeats (KIP-631, KIP-919).

A node that is alone in its quorum registers with itself and needs no heartbeats; this is for all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode, FatalError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import CONTROLLER, registrations
from kbroker.node.connection import internal_error
from kbroker.raft_metadata.image import Endpoint, MetadataDelta, MetadataImage, endpoint_entries, feature_entries
from kbroker.types import Uuid
from kbroker.wire.headers import RequestHeader
from kbroker.wire.messages import broker_registration, controller_registration
from kbroker.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.context import Services
    from kbroker.log.log_dir import LogDir
    from kbroker.node.raft_driver import RaftDriver

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
"""Between two attempts to reach the active controller."""

LEAVE_SECONDS = 2.0
"""How long a node that stops waits until all others know who leads instead (a process has 5 s in all to stop)."""

NO_CONTROLLER_SECONDS = 1.0
"""How long of this without an answer from any controller: perhaps all nodes stop."""

_FATAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_FORGOTTEN = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class _Local:
    """Stands for a connection when this node asks its own controller."""

    def __init__(self, listener_name: str) -> None:
        self.listener_name = listener_name
        self.is_controller = True
        self.peer = "this node"
        self.closed = False
        self.when_closed: Callable[[], None] | None = None


class BrokerLifecycle:
    """Registers the node as controller and as broker, and keeps it unfenced while it runs."""

    def __init__(self, driver: RaftDriver, services: Services) -> None:
        self._driver = driver
        self._services = services
        self.broker_epoch = -1
        self.fenced = True
        self._registration: Callable[[], broker_registration.BrokerRegistrationRequest] | None = None
        self._runs = False
        self._stops = False
        self._stopping: frozenset[int] = frozenset()
        """Other brokers that are in controlled shutdown."""
        self._controller_id = -1
        self._wanted = trio.Event()
        """Set when a heartbeat should not wait for its time."""
        self._beating = trio.Lock()

    async def ask_controller(self, request: Any, timeout: float | None = None) -> Any:
        """Have the active controller answer: this node's own, or another's, within ``timeout`` seconds or
        ``request.timeout.ms``; None if there is none to be reached."""
        driver = self._driver
        if not driver.is_leader:
            return await driver.forward(request, None, timeout=timeout)
        key = int(type(request).api_key)
        entry = registrations(CONTROLLER)[key]
        header = RequestHeader(key, entry.versions.max, 0, "local")
        context = RequestContext(header, _Local(driver.config.controller_listener_names[0]), self._services)
        try:
            return await entry.handle(request, context)
        except Exception:
            # As for whoever asks by way of a connection: a mistake in one API of the controller ends no broker.
            logger.exception("API key %d of this node's own controller failed", key)
            return internal_error(API_KEYS[key].response)

    async def _insist(self, make: Callable[[], Any], what: str) -> Any:
        """Ask until there is an answer without an error; :class:`FatalError` for one that will not go away."""
        told = None
        timeout = self._driver.config.initial_broker_registration_timeout_ms / 1000
        deadline = trio.current_time() + timeout
        while True:
            response = await self.ask_controller(make())
            code = None if response is None else ErrorCode.of(response.error_code)
            if code == ErrorCode.NONE:
                return response
            if code in _FATAL:
                raise FatalError(f"the active controller refuses {what}: {code.name if code is not None else ''}")
            if code != told and code not in (None, ErrorCode.NOT_CONTROLLER):
                told = code
                logger.warning("the active controller does not accept %s yet: %s", what, code.name if code else "")
            if code not in (None, ErrorCode.NOT_CONTROLLER) and trio.current_time() >= deadline:
                raise FatalError(f"the active controller refuses {what}: {code.name if code else ''}")
            await trio.sleep(RETRY_SECONDS)

    async def register_controller(self, endpoints: Sequence[Endpoint]) -> None:
        """Have this node's controller listeners written down."""
        api = controller_registration
        driver = self._driver
        request = api.ControllerRegistrationRequest(
            controller_id=driver.node_id,
            incarnation_id=driver.incarnation_id,
            listeners=endpoint_entries(api.Listener, endpoints),
            features=feature_entries(api.Feature, driver.features()),
        )
        await self._insist(lambda: request, "the registration of this controller")

    async def register_broker(
        self,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[Uuid],
        rack: str | None,
        *,
        previous_broker_epoch: int = -1,
    ) -> int:
        """Register as a broker; its epoch. It is fenced until ``run`` has sent a heartbeat.

        ``previous_broker_epoch``: what the life before was, if it stopped cleanly: its replicas have lost nothing.
        """
        api = broker_registration
        driver = self._driver
        self.broker_epoch = previous_broker_epoch

        def make() -> broker_registration.BrokerRegistrationRequest:
            return api.BrokerRegistrationRequest(
                broker_id=driver.node_id,
                cluster_id=driver.cluster_id,
                incarnation_id=driver.incarnation_id,
                listeners=endpoint_entries(api.Listener, endpoints),
                features=feature_entries(api.Feature, driver.features()),
                rack=rack,
                log_dirs=list(log_dirs),
                previous_broker_epoch=self.broker_epoch,
            )

        self._registration = make
        response = await self._insist(make, "the registration of this broker")
        self.broker_epoch = response.broker_epoch
        return self.broker_epoch

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Heartbeats until the node leaves; started when the controller has unfenced this broker, or the node leaves.

        :class:`FatalError` when every log dir has failed: another broker can do better.
        """
        self._runs = True
        self._services.log_manager.on_offline = lambda: self._wanted.set()
        self._driver.subscribe(self._on_image)
        interval = self._driver.config.broker_heartbeat_interval_ms / 1000
        started = False
        while not self._stops:
            self._wanted = trio.Event()
            self._services.log_manager.check_any_online()
            response = await self._heartbeat()
            if response is None or response.error_code:
                await trio.sleep(RETRY_SECONDS)
                continue
            self.fenced = response.is_fenced
            if self.fenced:
                await trio.sleep(RETRY_SECONDS)
                continue
            if not started:
                started = True
                task_status.started()
            with trio.move_on_after(interval):
                await self._wanted.wait()
        if not started:
            task_status.started()  # else the starter fails; it is cancelled as soon as this broker has left

    def _failed_log_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self._services.log_manager.log_dirs if log_dir.offline is not None]

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Another broker stops, and waits until the controller knows that all know it; or this one was fenced; or
        there is a new controller, which cannot see that this broker dies before it has heard of it."""
        if image.controller_id != self._controller_id:
            self._controller_id = image.controller_id
            self._wanted.set()
        if not delta.changed_brokers:
            return
        own = image.brokers.get(self._driver.node_id)
        stopping = frozenset(
            broker.id for broker in image.brokers.values() if broker.in_controlled_shutdown and not broker.fenced
        )
        if stopping - self._stopping or (own is not None and own.epoch == self.broker_epoch and own.fenced):
            self._wanted.set()
        self._stopping = stopping

    async def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse | None:
        async with self._beating:
            if self._stops and not want_shut_down:
                return None  # it would be unfenced again
            # One that gets lost must not cost the session (Kafka's BrokerServer: half of it).
            within = self._driver.config.broker_session_timeout_ms / 2000
            response: BrokerHeartbeatResponse | None = await self.ask_controller(
                BrokerHeartbeatRequest(
                    broker_id=self._driver.node_id,
                    broker_epoch=self.broker_epoch,
                    current_metadata_offset=self._driver.image.offset,
                    want_shut_down=want_shut_down,
                    offline_log_dirs=[
                        log_dir.directory_id for log_dir in self._failed_log_dirs() if log_dir.directory_id is not None
                    ],
                ),
                within,
            )
        if response is not None and response.error_code in _FORGOTTEN and not want_shut_down:
            # The controller knows another life of this broker, or none: begin again.
            assert self._registration is not None
            logger.warning("the controller has forgotten this broker's registration; it registers again")
            answer = await self._insist(self._registration, "the registration of this broker")
            self.broker_epoch = answer.broker_epoch
        return response

    async def leave(self) -> None:
        """The node stops: have others lead what it leads, and wait until they know, in the time there is."""
        others = self._driver.image.brokers.values()
        if not self._runs or not any(broker.active for broker in others if broker.id != self._driver.node_id):
            return  # nobody could take over anything
        self._stops = True
        self._wanted.set()
        with trio.move_on_after(LEAVE_SECONDS):
            while True:
                answer = None
                with trio.move_on_after(NO_CONTROLLER_SECONDS) as limit:
                    while answer is None:
                        answer = await self._heartbeat(want_shut_down=True)
                        if answer is None:
                            await trio.sleep(RETRY_SECONDS)
                if limit.cancelled_caught or answer is None:
                    logger.warning("no controller answers that this broker stops")
                    return
                if answer.should_shut_down or answer.error_code in _FORGOTTEN:
                    return
                await trio.sleep(RETRY_SECONDS / 2)
        logger.warning("the controller does not let this broker stop within %g s; it stops all the same", LEAVE_SECONDS)
