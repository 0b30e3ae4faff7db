"""Requests that a page of another site could make a browser send, and other strange ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from kbroker.tools.console.call import RequestRefused, read_body
from kbroker.tools.console.guard import Guard, refusal
from kbroker.tools.console.sessions import Sessions, cookie_name
from tests.console.console_process import ConsoleProcess

HOSTS = frozenset({"127.0.0.1:8080", "localhost:8080"})
GOOD = {
    "host": "localhost:8080",
    "origin": "http://localhost:8080",
    "content-type": "application/json",
    "content-length": "2",
    "x-csrf-token": "token",
    "sec-fetch-site": "same-origin",
}


def status(method: str, csrf: str | None = "token", **headers: str | None) -> int:
    """The status of a request like a good one but for some headers; 200 if it is let through."""
    sent = GOOD | {name.replace("_", "-"): value for name, value in headers.items()}
    found = refusal(method, "/api/x", {k: v for k, v in sent.items() if v is not None}, HOSTS, csrf)
    return 200 if found is None else found[0]


def test_what_the_page_itself_asks_is_let_through() -> None:
    assert status("POST") == 200
    assert status("GET", origin=None, content_type=None, content_length=None, x_csrf_token=None) == 200


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"host": "evil.example:8080"}, 421),
        ({"host": None}, 421),
        ({"host": "localhost"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:9090"}, 403),
        ({"origin": None, "sec_fetch_site": None}, 403),
        ({"origin": None, "sec_fetch_site": "none"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_length": None}, 411),
        ({"content_length": "-1"}, 411),
        ({"content_length": str(3 << 20)}, 413),
        ({"transfer_encoding": "chunked"}, 411),
        ({"x_csrf_token": None}, 403),
        ({"x_csrf_token": "other"}, 403),
        ({"x_csrf_token": "tokén"}, 403),
    ],
)
def test_what_changes_something_has_to_come_from_the_page(change: dict[str, str | None], expected: int) -> None:
    assert status("POST", **change) == expected


def test_a_post_without_a_session_is_refused() -> None:
    assert status("POST", csrf=None) == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    assert status(method) == 405


def test_a_page_of_another_site_can_read_nothing() -> None:
    assert status("GET", origin="http://evil.example") == 403
    assert status("GET", origin=None, sec_fetch_site="cross-site") == 403


def run_guard(scope: dict[str, Any], body: bytes) -> list[Message]:
    """The messages that the guard sends before an application that reads whatever comes."""
    sent: list[Message] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        document = await read_body(Request(scope, receive))
        sent.append({"type": "read", "document": document})

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    sessions = Sessions()
    session = sessions.begin(None)
    headers = GOOD | {"x-csrf-token": session.csrf, "cookie": f"kbroker_console_8080={session.id}"}
    whole = scope | {"path": "/api/x", "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}
    trio.run(Guard(application, hosts=HOSTS, sessions=sessions), whole, receive, send)
    return sent


def test_a_body_longer_than_it_says_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        run_guard({"type": "http", "method": "POST"}, b" " * (1 << 20))
    assert refused.value.status == 413


def test_web_sockets_are_closed() -> None:
    assert run_guard({"type": "websocket"}, b"") == [{"type": "websocket.close", "code": 1008}]


# --- Over the wire --------------------------------------------------------------------------------------------------


def test_each_answer_tells_the_browser_to_be_strict(console: ConsoleProcess) -> None:
    for path in ("/", "/js/app.js", "/api/session", "/nothing", "/api/nothing"):
        headers = console.request("GET", path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy, path
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    assert console.request("GET", "/api/session").headers["Cache-Control"] == "no-store"


def test_the_cookie_is_for_this_page_alone(console: ConsoleProcess) -> None:
    cookie = console.request("GET", "/api/session").headers["Set-Cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie


@pytest.mark.parametrize(
    ("host", "secure", "name"),
    [
        ("localhost:8080", False, "kbroker_console_8080"),
        ("[::1]:8081", False, "kbroker_console_8081"),
        ("[::1]", False, "kbroker_console"),
        ("console.example", True, "__Host-kbroker_console"),
    ],
)
def test_consoles_of_one_host_do_not_share_a_cookie(host: str, secure: bool, name: str) -> None:
    assert cookie_name(host, secure=secure) == name


def test_the_cookie_under_https_is_of_this_host_alone(console: ConsoleProcess) -> None:
    answer = console.request("GET", "/api/session", headers={"X-Forwarded-Proto": "https"})
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-kbroker_console_") and "; Secure" in cookie
    sent = {"X-Forwarded-Proto": "https", "Cookie": cookie.split(";")[0]}
    again = console.request("GET", "/api/session", headers=sent)
    assert again.json["csrf"] == answer.json["csrf"]


def test_a_name_that_leads_here_by_chance_is_refused(console: ConsoleProcess) -> None:
    answer = console.request("GET", "/api/overview", headers={"Host": "rebound.example"})
    assert answer.status == 421
    assert "--allow-host" in answer.error


def test_a_token_of_another_session_does_not_help(console: ConsoleProcess) -> None:
    console.enter()
    other = json.loads(console.request("GET", "/api/session").body)["csrf"]
    assert other != console.csrf
    answer = console.post("topic/create", {"name": "forged"}, {"X-CSRF-Token": other})
    assert answer.status == 403


def test_files_outside_of_the_page_are_not_served(console: ConsoleProcess) -> None:
    for path in ("/../command.py", "/%2e%2e/command.py", "/js/..%2f..%2fcommand.py", "//etc/passwd", "/js"):
        assert console.request("GET", path).status in (404, 307), path


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"name": NaN}', b"[" * 100_000, b"\xff\xfe", b'"text"'])
def test_what_is_no_object_of_json_is_refused(console: ConsoleProcess, body: bytes) -> None:
    console.enter()
    headers = {
        "Cookie": console.cookie,
        "Origin": f"http://{console.host}",
        "Content-Type": "application/json",
        "X-CSRF-Token": console.csrf,
    }
    assert console.request("POST", "/api/topic/create", body, headers).status == 400


def test_unknown_addresses_are_told_in_json(console: ConsoleProcess) -> None:
    answer = console.get("no/such/thing")
    assert (answer.status, answer.error) == (404, "there is nothing at this address")
