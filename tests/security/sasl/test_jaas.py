"""Lines of sasl.jaas.config: the language of Java's StreamTokenizer, and a closed list of modules."""

from __future__ import annotations

import pytest

from kbroker.config.properties_file import parse_properties
from kbroker.security.sasl.jaas import JaasError, LoginModule, parse_jaas

PLAIN = LoginModule.PLAIN.value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username=alice password='sec ret'", {"username": "alice", "password": "sec ret"}),
        ('\n  user_alice = "a;b=c"\n  user_bob-2="x"', {"user_alice": "a;b=c", "user_bob-2": "x"}),
        (r'password="a\"b\\c\td\101"', {"password": 'a"b\\c\tdA'}),
        ('/* all */ a="1" // the rest\n b="2"', {"a": "1", "b": "2"}),
        ('"user_a@b"="x"', {"user_a@b": "x"}),
        ('user_ä="ü"', {"user_ä": "ü"}),
        ('a="" a="2"', {"a": "2"}),
        ("", {}),
    ],
)
def test_options_are_read_as_java_reads_them(options: str, expected: dict[str, str]) -> None:
    entry = parse_jaas(f"{PLAIN} required {options};")
    assert (entry.module, entry.options) == (LoginModule.PLAIN, expected)


IN_FILES = r"""
on.several.lines=org.apache.kafka.common.security.plain.PlainLoginModule required \
\tusername="admin" \
    password="admin-secret" \
    user_admin="admin-secret" \
    user_alice="alice-secret";
from.the.next.line.on=\
  com.sun.security.auth.module.Krb5LoginModule required \
  useKeyTab=true \
  storeKey=true \
  keyTab="/etc/security/keytabs/kafka.keytab" \
  principal="kafka/broker1.example.com@EXAMPLE.COM";
without.options = org.apache.kafka.common.security.scram.ScramLoginModule required;
without.quotes=org.apache.kafka.common.security.scram.ScramLoginModule required username=writer password=abc123;
with.single.quotes=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId='kafka' \
  clientSecret='secret' scope="openid profile email" ;
quotes.escaped=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"p\";
of.a.cloud=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \
  password="Endpoint=sb://x.example.net/;SharedAccessKeyName=k;SharedAccessKey=abc=";
line.ends.in.the.value=org.apache.kafka.common.security.scram.ScramLoginModule   required\n username="a"\n password="b";
"""
"""Lines of sasl.jaas.config in the forms that people's server.properties have them in."""


def test_lines_of_properties_files_in_the_forms_that_people_write() -> None:
    lines = {name: parse_jaas(value) for name, value in parse_properties(IN_FILES.replace(r"\t", "\t")).items()}
    assert {name: (entry.module.name, dict(entry.options)) for name, entry in lines.items()} == {
        "on.several.lines": (
            "PLAIN",
            {
                "username": "admin",
                "password": "admin-secret",
                "user_admin": "admin-secret",
                "user_alice": "alice-secret",
            },
        ),
        "from.the.next.line.on": (
            "KERBEROS",
            {
                "useKeyTab": "true",
                "storeKey": "true",
                "keyTab": "/etc/security/keytabs/kafka.keytab",
                "principal": "kafka/broker1.example.com@EXAMPLE.COM",
            },
        ),
        "without.options": ("SCRAM", {}),
        "without.quotes": ("SCRAM", {"username": "writer", "password": "abc123"}),
        "with.single.quotes": (
            "OAUTHBEARER",
            {"clientId": "kafka", "clientSecret": "secret", "scope": "openid profile email"},
        ),
        "quotes.escaped": ("SCRAM", {"username": "u", "password": "p"}),
        "of.a.cloud": (
            "PLAIN",
            {
                "username": "$ConnectionString",
                "password": "Endpoint=sb://x.example.net/;SharedAccessKeyName=k;SharedAccessKey=abc=",
            },
        ),
        "line.ends.in.the.value": ("SCRAM", {"username": "a", "password": "b"}),
    }


@pytest.mark.parametrize("flag", ["REQUIRED", "requisite", "Sufficient", "optional"])
def test_any_control_flag_will_do(flag: str) -> None:
    assert parse_jaas(f'{PLAIN} {flag} a="b";').options == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no login module"),
        ('username="hunter2"', "it is not one of the login modules"),
        ("hunter2", "it is not one of the login modules"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "JndiLoginModule is not one of"),
        ("com.sun.security.auth.module.LdapLoginModule required x=hunter2;", "LdapLoginModule is not one of"),
        ("PlainLoginModul required;", f"PlainLoginModul is not a login module; did you mean {PLAIN}?"),
        ("org.apache.kafka.common.security.scram.ScramLogin required;", "did you mean .*ScramLoginModule?"),
        (f"{PLAIN[:-1]} required;", f"did you mean {PLAIN}?"),
        (f"{PLAIN} requird;", "one of required, requisite, sufficient, optional, not requird"),
        (PLAIN, "must be followed by its control flag"),
        (f"{PLAIN} hunter2;", "must be followed by its control flag"),
        (f'{PLAIN} required password="hunter2"', "not terminated by a semicolon"),
        (f'{PLAIN} required password="hunter2', "does not end on its line"),
        (f'{PLAIN} required password="hun\nter2";', "does not end on its line"),
        (f"{PLAIN} required password=1hunter2;", "of the form"),
        (f"{PLAIN} required password;", "of the form"),
        (f"{PLAIN} required password=;", "of the form"),
        (f"{PLAIN} required; {PLAIN} required;", "2 login modules"),
        (f'{PLAIN} required password="x"; user_hunter2="hunter2";', "a semicolon ends the login module, and more"),
    ],
)
def test_what_is_no_line_is_refused_and_not_repeated(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason) as caught:
        parse_jaas(text)
    assert "hun" not in str(caught.value) and caught.value.__cause__ is None


def test_no_text_shows_options() -> None:
    entry = parse_jaas(f'{PLAIN} required password="hunter2";')
    assert "hunter2" not in repr(entry) and "hunter2" not in str(entry)
    with pytest.raises(JaasError, match="needs the option username"):
        entry.required("username")


def test_only_modules_that_work_here_are_advised() -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas("a.LoginModule required;")
    told = str(caught.value)
    assert all(each in told for each in (PLAIN, "ScramLoginModule", "OAuthBearerLoginModule", "Krb5LoginModule"))
