"""The argument of kbroker format --add-scram."""

from __future__ import annotations

import pytest

from kbroker.security.sasl.add_scram import parse_add_scram
from kbroker.security.sasl.scram import ScramCredential, ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256


def test_a_password_gets_a_random_salt() -> None:
    one = parse_add_scram(" SCRAM-SHA-512=[name=alice,password=secret]")
    other = parse_add_scram("SCRAM-SHA-512=[name=alice,password=secret]")
    assert (one.name, one.mechanism, one.credential.iterations) == ("alice", ScramMechanism.SCRAM_SHA_512, 4096)
    assert one.credential.salt != other.credential.salt
    again = ScramCredential.from_password(one.mechanism, "secret", salt=one.credential.salt)
    assert again == one.credential


def test_all_may_be_chosen() -> None:
    text = 'SCRAM-SHA-256=[name=alice,iterations=8192,salt="c2FsdA==",password="sec=ret"]'
    user = parse_add_scram(text)
    assert user.credential == ScramCredential.from_password(SHA_256, "sec=ret", salt=b"salt", iterations=8192)
    salted = parse_add_scram("SCRAM-SHA-256=[name=alice,salt=c2FsdA==,saltedpassword=c2FsdGVk]")
    assert salted.credential == ScramCredential.from_salted(SHA_256, b"salted", b"salt", 4096)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SCRAM-SHA-256", "expected MECHANISM"),
        ("PLAIN=[name=a,password=hunter2]", "PLAIN is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=name=a,password=hunter2", r"in \[ and \]"),
        ("SCRAM-SHA-256=[password=hunter2]", "name is missing"),
        ("SCRAM-SHA-256=[name=,password=hunter2]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "one of password and saltedpassword"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=hunter22]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,more]", "list of NAME=VALUE"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,hunter2=x]", "only name"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=many]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=" + "9" * 5000 + "]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,salt=hunter2!]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword=hunter2!]", "saltedpassword is not base64"),
    ],
)
def test_what_has_another_form_is_refused_and_not_repeated(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse_add_scram(text)
    assert "hunter2" not in str(caught.value)
