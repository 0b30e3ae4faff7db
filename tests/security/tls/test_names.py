"""Principals' names: subjects as ``X500Principal.getName()`` gives them (JDK 17), and Kafka's mapping rules."""

from __future__ import annotations

import pytest

from kbroker.config.config_key import InvalidConfig
from kbroker.security.tls.authority import Authority
from kbroker.security.tls.names import MappingRules, NoMatchingRule, subject_name

UTF8, PRINTABLE, T61, IA5, BMP, BITS = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x03
CN, C, L, ST, ORG, OU = ("55040" + digit for digit in "3678ab")
STREET, SERIAL, TITLE, UID_, SURNAME, GIVEN = "550409", "550405", "55040c", "55042d", "550404", "55042a"
EMAIL, USER, DC = "2a864886f70d010901", "0992268993f22c640101", "0992268993f22c640119"
ODD = "2b06010401868d1f810005"
Attribute = tuple[str, int, str | bytes]


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    return bytes([tag, length] if length < 128 else [tag, 0x82, length >> 8, length & 255]) + content


def certificate(parts: list[list[Attribute]]) -> bytes:
    """As much of a certificate as has a subject."""
    subject = b""
    for part in parts:
        attributes = b""
        for oid, tag, value in part:
            content = value if isinstance(value, bytes) else value.encode()
            attributes += der(0x30, der(0x06, bytes.fromhex(oid)) + der(tag, content))
        subject += der(0x31, attributes)
    before = der(0xA0, der(2, b"\2")) + der(2, b"\1") + der(0x30, b"") * 3
    return der(0x30, der(0x30, before + der(0x30, subject) + der(0x30, b"")) + der(0x30, b"") + der(3, b"\0"))


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([], ""),
        (
            [[(C, PRINTABLE, "DE")], [(ORG, UTF8, "Ex, Inc. #1")], [(CN, UTF8, "alice")]],
            r"CN=alice,O=Ex\, Inc. \#1,C=DE",
        ),
        (
            [[(EMAIL, IA5, "a@b.c")], [(CN, UTF8, " lead and trail ")]],
            r"CN=\ lead and trail\ ,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        ([[(CN, UTF8, "a"), (OU, UTF8, "ou"), (USER, UTF8, "u")]], "CN=a+OU=ou+UID=u"),
        (
            [
                [(SERIAL, PRINTABLE, "123")],
                [(DC, IA5, "dc")],
                [(STREET, UTF8, "s")],
                [(ST, UTF8, "st")],
                [(L, UTF8, "l")],
            ],
            "L=l,ST=st,STREET=s,DC=dc,2.5.4.5=#1303313233",
        ),
        ([[(CN, UTF8, 'q"uo\\te<>;+=#x')]], r"CN=q\"uo\\te\<\>\;\+\=\#x"),
        ([[(CN, UTF8, "Zoë ☃ 💩")], [(TITLE, UTF8, "Dr")]], "2.5.4.12=#0c024472,CN=Zoë ☃ 💩"),
        (
            [[(CN, UTF8, "#hash")], [(CN, UTF8, "a\0b")], [(CN, UTF8, "nl\nx")], [(CN, UTF8, "\r x \r")]],
            "CN=\\\r\\ x\\ \\\r,CN=nl\nx,CN=a\\00b,CN=\\#hash",
        ),
        ([[(CN, BMP, "bmp".encode("utf-16-be"))]], r"CN=\00b\00m\00p"),
        ([[(CN, T61, "t61")]], "CN=t61"),
        ([[(CN, UTF8, "   ")]], r"CN=\ \ \ "),
        ([[(ODD, UTF8, "odd")], [(UID_, BITS, b"\0\0\1")]], "2.5.4.45=#0303000001,1.3.6.1.4.1.99999.128.5=#0c036f6464"),
        (
            [[(CN, UTF8, "x@*'()?:-/&!_%")], [(SURNAME, UTF8, "s"), (GIVEN, UTF8, "g")]],
            "2.5.4.4=#0c0173+2.5.4.42=#0c0167,CN=x@*'()?:-/&!_%",
        ),
        ([[(CN, UTF8, "x" * 300)]], "CN=" + "x" * 300),
    ],
)
def test_names_are_javas(parts: list[list[Attribute]], name: str) -> None:
    assert subject_name(certificate(parts)) == name


def test_what_is_no_certificate_is_an_error() -> None:
    whole = certificate([[(CN, UTF8, "a")]])
    for end in range(len(whole)):
        with pytest.raises(ValueError):
            subject_name(whole[:end])


def test_the_authoritys_certificates_have_their_subjects() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    issued = Authority.create().issue("CN=alice,O=Ex\\, Inc.")
    assert subject_name(issued.certificate.public_bytes(Encoding.DER)) == r"CN=alice,O=Ex\, Inc."


ALICE, BOB = "CN=Alice,OU=Sales,O=Ex", "CN=bob"


@pytest.mark.parametrize(
    ("rules", "name", "result"),
    [
        ("DEFAULT", ALICE, ALICE),
        (" DEFAULT ", "", ""),
        (",,DEFAULT,", BOB, BOB),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", ALICE, "Alice@Sales"),
        ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", ALICE, "alice"),
        ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", BOB, BOB),
        ("RULE:^CN=([^,]+).*$/$1/U", BOB, "BOB"),
        ("RULE:.*/x/", BOB, "xx"),  # each match is replaced, the empty one at the end too
        ("RULE:(.*)/x$1/", BOB, "xCN=bobx"),
        ("RULE:CN=(\\w+).*/$12/", BOB, "bob2"),
        ("RULE:CN=(?<n>\\w+).*/${n}!/", ALICE, "Alice!"),
        ("RULE:CN=bob/a\\/b/", BOB, "a/b"),
        ("RULE:CN=bob/a\\$b/", BOB, "a$b"),
        ("RULE:^CN=bob$/x,y/L,DEFAULT", BOB, "x,y"),
        ("RULE:^(CN)=(bob)$/$2-$1-$3-$0/", BOB, "bob-CN-$3-CN=bob"),
        ("RULE:CN=b(o)b|CN=(\\w+),.*/[$1$2]/", BOB, "[o]"),
        ("RULE:(?i)cn=BOB/ok/", BOB, "ok"),
        # In Java (?i), \w and \d are for ASCII: nobody becomes an administrator by a letter that looks like one.
        ("RULE:(?i)CN=admins/super/,DEFAULT", "CN=ADM\u0130NS", "CN=ADM\u0130NS"),
        ("RULE:(?i)CN=admins/super/,DEFAULT", "CN=admin\u017f", "CN=admin\u017f"),
        ("RULE:CN=node-\\d+/broker/,DEFAULT", "CN=node-\u0661", "CN=node-\u0661"),
        ("RULE:CN=(\\w+)/$1/,DEFAULT", "CN=Zo\u00eb", "CN=Zo\u00eb"),
        ("RULE:CN=\\Qb\\Eob/q/", BOB, "q"),
        ("RULE:CN=bob//,DEFAULT", BOB, ""),
        ("RULE:^CN=([^,]*+).*$/$1/", ALICE, "Alice"),
    ],
)
def test_rules_are_kafkas(rules: str, name: str, result: str) -> None:
    assert MappingRules(rules).name(name) == result


@pytest.mark.parametrize("rules", ["", "RULE:^CN=x$/x/", "RULE:CN=bob/x/"])
def test_a_name_that_no_rule_fits_has_no_principal(rules: str) -> None:
    with pytest.raises(NoMatchingRule):
        MappingRules(rules).name(ALICE)


@pytest.mark.parametrize(
    "rules",
    [
        "FOO",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/Lx",
        "RULE:[/x/",
        "DEFAULTRULE:a/b/",
        "RULE:a/b/L RULE:c/d/",
        "RULE:CN=bob/$1/",
        "RULE:(?<n>x)/${m}/",
        "RULE:\\p{Alpha}/x/",
        "RULE:" + 20_000 * "(" + 20_000 * ")" + "/x/",
    ],
)
def test_bad_rules_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules(rules)
