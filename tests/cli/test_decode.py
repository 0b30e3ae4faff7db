"""kbroker decode: where a frame may come from, and what is said of one that is none."""

import io
from pathlib import Path

import pytest

from kbroker.tools.cli import main
from kbroker.tools.cli.decode import clean_hex, from_hex_or_raw

API_VERSIONS_V0 = "0000000a 0012 0000 00000007 ffff"


def test_a_request_in_hexadecimal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", API_VERSIONS_V0]) == 0
    out = capsys.readouterr().out
    assert "ApiVersionsRequest v0" in out and "correlation_id: Int32 = 7" in out


def test_files_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = bytes.fromhex(API_VERSIONS_V0)
    (tmp_path / "raw").write_bytes(raw)
    (tmp_path / "hex").write_text(API_VERSIONS_V0 + "\n")
    for source in ("raw", "hex"):
        assert main(["decode", str(tmp_path / source)]) == 0
    for data in (raw, API_VERSIONS_V0.encode()):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert main(["decode"]) == 0
    assert capsys.readouterr().out.count("ApiVersionsRequest v0") == 4


@pytest.mark.parametrize("api", ["ApiVersions:0", "18:0", "apiversions:0"])
def test_a_response(capsys: pytest.CaptureFixture[str], api: str) -> None:
    assert main(["decode", "--response", api, "000000070000000000010012000000040000"[:32]]) == 0
    assert "ApiVersionsResponse v0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xyz"], "neither hexadecimal digits nor a file"),
        (["0012"], "damaged"),
        (["001200000000000700ffaa"], "damaged"),
        (["--response", "Fetch:1", "00000001"], "versions"),
    ],
)
def test_what_cannot_be_decoded(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["decode", *words]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_hexadecimal() -> None:
    assert clean_hex("0x00:01 ff\n") == "0001ff"
    assert clean_hex("0") is None and clean_hex("") is None and clean_hex("0g") is None
    assert from_hex_or_raw(b"\xff\x00") == b"\xff\x00"
