"""The command ``kbroker console``: what it refuses before it serves anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.tools.cli import main
from kbroker.tools.console.serving import page_address


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--listen", "0.0.0.0:8080", "--writes", "--allow-host", "x:8080"],
            "give --sign-in, too, or --anybody-may-change-everything if that is meant",
        ),
        (["--listen", "0.0.0.0:8080", "--writes", "--anybody-may-change-everything"], "needs --allow-host"),
        (["--listen", "0.0.0.0:8080"], "needs --allow-host"),
        (["--listen", "8080"], "is not an address"),
        (["--listen", "localhost:99999"], "is not an address"),
        (["--mask", "nonsense"], "is not a mask"),
        (["--sign-in"], "--sign-in needs --command-config"),
        (["--mask", "cards=key", "--explorer", "127.0.0.1:9292"], "give one of them"),
        (["--explorer", ":x"], "is not addresses such as"),
        (["-b", "no port:x"], "is not of the form host:port"),
    ],
)
def test_what_does_not_go_together_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["console", *words])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--writes", "--anybody-may-change-everything"],
            "whoever reaches 0.0.0.0 can read, change and delete everything",
        ),
        ([], "whoever reaches 0.0.0.0 sees the records of the cluster"),
    ],
)
def test_what_is_open_to_the_network_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory = "no-such-directory"
    listen = ["--listen", "0.0.0.0:8080", "--allow-host", "x:8080"]
    assert main(["console", *listen, *words, "--audit-log", f"{directory}/log"]) == 1  # it does not come to serve
    errors = capsys.readouterr().err
    assert told in errors and "without TLS" in errors and directory in errors


def test_users_sign_in_by_sasl_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\n")
    assert main(["console", "--sign-in", "--command-config", str(config)]) == 2
    assert "security.protocol has to be SASL_SSL or SASL_PLAINTEXT" in capsys.readouterr().err
    config.write_text("security.protocol=SASL_PLAINTEXT\n")
    assert main(["console", "--sign-in", "--command-config", str(config)]) == 2
    assert "sasl.mechanism has to be one of PLAIN" in capsys.readouterr().err


def test_an_audit_log_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--audit-log", str(tmp_path / "no" / "such.log")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_the_page_is_known_by_the_names_of_this_machine() -> None:
    url, hosts = page_address("127.0.0.1", 8080)
    assert url == "http://127.0.0.1:8080/"
    assert hosts == {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}
    assert page_address("::1", 80)[1] >= {"localhost", "[::1]"}
    assert page_address("10.0.0.7", 8080) == ("http://10.0.0.7:8080/", frozenset({"10.0.0.7:8080"}))
