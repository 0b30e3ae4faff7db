"""Protobuf becomes JSON; what does not fit is refused."""

from __future__ import annotations

import base64
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.schemas.protobuf import compile_protobuf
from kbroker.client.schemas.wire_format import PackageMissing, UndecodableRecord

pytest.importorskip("google.protobuf")

from tests.schemas.protobuf_files import BYTES, INT64, STRING, classes_of, encoded, file_of, message_of

ITEM = message_of("Item", {"name": STRING, "size": INT64})
ORDER = message_of(
    "Order", {"order_id": INT64, "raw": BYTES, "at": ".google.protobuf.Timestamp", "item": ".shop.Order.Item"}, ITEM
)
SHOP = file_of("shop.proto", "shop", ITEM, ORDER, imports=("google/protobuf/timestamp.proto",))


def test_a_message_with_its_defaults() -> None:
    order = classes_of(SHOP)("shop.Order")(order_id=2**60, raw=b"\xff")
    order.at.seconds = 1_700_000_000
    order.item.name = "ä"
    found = compile_protobuf(encoded(SHOP), [])(b"\x02\x02" + order.SerializeToString())
    assert json.loads(found) == {
        "order_id": str(2**60),
        "raw": "/w==",
        "at": "2023-11-14T22:13:20Z",
        "item": {"name": "ä", "size": "0"},
    }
    assert "\n" not in found


def test_a_type_by_its_place() -> None:
    decode = compile_protobuf(encoded(SHOP), [])
    item = classes_of(SHOP)("shop.Item")(name="x").SerializeToString()
    assert json.loads(decode(b"\0" + item)) == {"name": "x", "size": "0"}
    assert json.loads(decode(b"\x04\x02\x00" + item)) == {"name": "x", "size": "0"}
    with pytest.raises(UndecodableRecord, match="no type at 7"):
        decode(b"\x02\x0e" + item)


def test_imports_under_the_names_of_references() -> None:
    address = file_of("default", "there", message_of("Address", {"city": STRING}))
    imports = ("dir/address.proto", "confluent/meta.proto")
    top = file_of("default", "", message_of("Top", {"a": ".there.Address"}), imports=imports)
    data = b"\0\x0a\x06\x0a\x04Oslo"
    assert json.loads(compile_protobuf(encoded(top), [("dir/address.proto", encoded(address))])(data)) == {
        "a": {"city": "Oslo"}
    }
    with pytest.raises(UndecodableRecord, match="its Protobuf schema cannot be used"):
        compile_protobuf(encoded(top), [])


def test_a_decimal_of_confluents_whose_file_no_reference_names() -> None:
    imports = ("confluent/type/decimal.proto",)
    top = file_of("default", "", message_of("Top", {"price": ".confluent.type.Decimal"}), imports=imports)
    data = b"\0\x0a\x07\x0a\x01\x7b\x10\x08\x18\x02"
    assert json.loads(compile_protobuf(encoded(top), [])(data)) == {
        "price": {"value": "ew==", "precision": 8, "scale": 2}
    }


@pytest.mark.parametrize("text", ["", "AAAA", "no base64", base64.b64encode(b"\x0a\xff").decode()])
def test_a_schema_that_is_none(text: str) -> None:
    with pytest.raises(UndecodableRecord):
        compile_protobuf(text, [])(b"\0")


def test_a_few_bytes_do_not_become_gigabytes_of_defaults() -> None:
    wide = message_of("Wide", {f"field_{number}": INT64 for number in range(500)})
    many = message_of("Many", {"wide": ".Wide"})
    many.field[0].label = 3
    decode = compile_protobuf(encoded(file_of("default", "", many, wide)), [])
    assert len(json.loads(decode(b"\0" + b"\x0a\x00" * 5))["wide"]) == 5
    with pytest.raises(UndecodableRecord, match="its JSON would have more than 16 MiB"):
        decode(b"\0" + b"\x0a\x00" * 50_000)


def test_a_large_message_of_few_values_is_decoded() -> None:
    wide = message_of("Wide", {"text": STRING, **{f"field_{number}": INT64 for number in range(50)}})
    file = file_of("default", "", wide)
    message = classes_of(file)("Wide")(text="x" * 200_000)
    found = json.loads(compile_protobuf(encoded(file), [])(b"\0" + message.SerializeToString()))
    assert len(found) == 51 and len(found["text"]) == 200_000


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    decode = compile_protobuf(encoded(SHOP), [])
    try:
        json.loads(decode(data))
    except UndecodableRecord as error:
        assert "\n" not in str(error)


def test_the_package_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(PackageMissing, match="Protobuf needs the package protobuf"):
        compile_protobuf("", [])
