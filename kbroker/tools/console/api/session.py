"""The page's session: what the console may do, and signing in with a user of the cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio
from starlette.responses import JSONResponse, Response

from kbroker.client import Client
from kbroker.client.errors import AuthenticationFailed
from kbroker.client.nodes import describe_cluster
from kbroker.client.properties import ClientProperties
from kbroker.client.records_io.json_types import Json
from kbroker.tools.console.audit import write_audit
from kbroker.tools.console.call import Call, RequestRefused, set_cookie
from kbroker.tools.console.sessions import Session
from kbroker.version import __version__

_FAILED_SECONDS = 1.0
"""The time that a failed sign-in holds its place, of which there are two: nobody can try many passwords."""

_MAX_WAITING = 16
"""Sign-ins that wait for one of the places."""

_LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


async def describe_session(call: Call) -> Json:
    """The session's token, its user, and what this console lets it do."""
    return _told(call, call.session)


def _told(call: Call, session: Session) -> Json:
    settings = call.console.settings
    return {
        "csrf": session.csrf,
        "user": session.user,
        "sign_in": settings.sign_in and session.view is None,
        "signed_in": session.user is not None,
        "writes": settings.writes,
        "faults": call.console.faults is not None,
        "registry": call.console.registry is not None,
        "explorer": call.console.watching is not None,
        "tables": settings.tables is not None,
        "bootstrap": settings.bootstrap,
        "cluster": settings.cluster,
        "clusters": [{"name": name, "path": path} for name, path in call.console.clusters],
        "version": __version__,
    }


async def reach_cluster(call: Call) -> Json:
    """Tell how many brokers the cluster has; an error tells why it cannot be reached."""
    return {"brokers": len((await call.ask(describe_cluster)).brokers)}


async def sign_in(call: Call) -> Response:
    """Sign in: the cluster itself judges name and password. The session gets a new name and token then."""
    settings = call.console.settings
    if not settings.sign_in or settings.properties is None:
        raise RequestRefused(400, "this console asks nobody to sign in")
    user, password = call.text("user"), call.text("password")
    if len(user) > 200 or len(password) > 1000:
        raise RequestRefused(400, "that is too long for a name and a password")
    back_off = call.console.back_off
    _let_try(call, user)
    async with call.console.sign_ins:
        # Others of this user's tries may have failed while this one waited.
        _let_try(call, user)
        view = call.console.view_of(user_properties(settings.properties, user, password))
        try:
            await view.cluster.ask(_enter)
        except AuthenticationFailed:
            view.cluster.close()
            back_off.failed(call.address, user)
            write_audit(user, call.address, "sign-in", user, None, "refused", settings.cluster)
            await trio.sleep(_FAILED_SECONDS)
            raise RequestRefused(401, "the cluster does not know this user, or the password is another") from None
        except BaseException:
            view.cluster.close()
            raise
    back_off.succeeded(call.address, user)
    write_audit(user, call.address, "sign-in", user, None, "done", settings.cluster)
    call.console.sessions.end(call.session)
    session = call.console.sessions.begin(view, user)
    response = JSONResponse(_told(call, session))
    set_cookie(response, session, call.request)
    return response


def _let_try(call: Call, user: str) -> None:
    """Refuse a sign-in that has to wait, or for which too many others wait."""
    seconds = call.console.back_off.wait(call.address, user)
    if seconds:
        raise RequestRefused(429, f"too many failed sign-ins: try again in {math.ceil(seconds)} s")
    if call.console.sign_ins.statistics().tasks_waiting >= _MAX_WAITING:
        raise RequestRefused(429, "too many sign in at once: try again in a moment")


async def sign_out(call: Call) -> Response:
    """End the session; the browser gets a new one."""
    if call.session.user is not None:
        call.audit("sign-out", call.session.user, None, "done")
    call.console.sessions.end(call.session)
    session = call.console.begin_session()
    response = JSONResponse(_told(call, session))
    set_cookie(response, session, call.request)
    return response


def _enter(client: Client) -> None:
    client.refresh(())


def user_properties(base: ClientProperties, user: str, password: str) -> ClientProperties:
    """The properties of one user: those of the file with another login."""
    mechanism = str(base["sasl.mechanism"])
    module = _LOGIN_MODULES[mechanism]
    jaas = f'{module} required username="{_quoted(user)}" password="{_quoted(password)}";'
    return base.with_login(jaas)


def can_sign_in(properties: ClientProperties) -> str:
    """The reason why users cannot sign in with these properties; empty if they can."""
    if not str(properties["security.protocol"]).upper().startswith("SASL_"):
        return "security.protocol has to be SASL_SSL or SASL_PLAINTEXT"
    if properties["sasl.mechanism"] not in _LOGIN_MODULES:
        return f"sasl.mechanism has to be one of {', '.join(_LOGIN_MODULES)}"
    return ""


def _quoted(text: str) -> str:
    """A text within the quotes of a JAAS line, whatever it holds."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return "".join(escapes.get(letter, letter) for letter in text)
