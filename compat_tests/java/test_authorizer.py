"""Thousands of decisions, by kbroker's authorizer and by the class of Apache Kafka 4.4.0 that it follows.

Nobody is called ``User:*`` here: Apache Kafka fails for that name, where kbroker has only the rules for everybody.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from compat_tests.clients import skip_without
from compat_tests.java.client import program
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.security.principal import KafkaPrincipal, parse_principal
from tests.patience import LONG

NAMES = ("*", "!", "a", "ab", "abc", "abd", "b", "ba", "hardcode", "hard", "h", "z", "ü")
"""None that begins with a star and goes on: Kafka does not apply the rules for ``*`` to those, and kbroker does."""
ASKERS = ("User:a", "User:b", "Service:a", "User:a:b")
PRINCIPALS = (*ASKERS, "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1", "2001:db8::1")
ACL_HOSTS = ("*", "*", "10.0.0.1", "::1", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:1", "localhost")
OPERATIONS = tuple(operation for operation in AclOperation if operation > AclOperation.ANY)
ASKED = tuple(operation for operation in OPERATIONS if operation is not AclOperation.ALL)
TYPES = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP)


class _World:
    """An authorizer of each kind with the same rules: kbroker's decides, Apache Kafka's gets lines to decide by."""

    def __init__(self, rng: random.Random, lines: list[str]) -> None:
        self._rng = rng
        self._lines = lines
        everyone = rng.random() < 0.2
        super_user = rng.choice(ASKERS)
        self.authorizer = StandardAuthorizer(
            [], super_users=[parse_principal(super_user)] if rng.random() < 0.2 else [], allow_everyone=everyone
        )
        known = super_user if self.authorizer._super_users else ""
        self._lines.append(f"reset\t{known}\t{str(everyone).lower()}")
        self._acls: dict[int, Acl] = {}
        self._next = 0

    def change(self) -> None:
        """Add an ACL, or remove one."""
        rng = self._rng
        if self._acls and rng.random() < 0.25:
            number = rng.choice(list(self._acls))
            self.authorizer.change([self._acls.pop(number)], ())
            self._lines.append(f"remove\t{number}")
            return
        acl = Acl(
            rng.choice(TYPES),
            rng.choice(NAMES),
            rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            rng.choice(PRINCIPALS),
            rng.choice(ACL_HOSTS),
            rng.choice(OPERATIONS),
            AclPermission.DENY if rng.random() < 0.25 else AclPermission.ALLOW,
        )
        if acl in self._acls.values():
            return
        self._next += 1
        self._acls[self._next] = acl
        self.authorizer.change((), [acl])
        words = [
            *("add", str(self._next), acl.resource_type.name, acl.resource_name, acl.pattern_type.name),
            *(acl.principal, acl.host, acl.operation.name, acl.permission.name),
        ]
        self._lines.append("\t".join(words))

    def ask(self) -> bool:
        """A question to both; our answer."""
        rng = self._rng
        principal, host = rng.choice(ASKERS), rng.choice(HOSTS)
        operation, kind = rng.choice(ASKED), rng.choice(TYPES)
        who: KafkaPrincipal = parse_principal(principal)
        if rng.random() < 0.3:
            self._lines.append("\t".join(("any", principal, host, operation.name, kind.name)))
            return self.authorizer.authorize_by_resource_type(who, host, operation, kind)
        name = rng.choice(NAMES)
        self._lines.append("\t".join(("ask", principal, host, operation.name, kind.name, name)))
        return self.authorizer.authorize(who, host, operation, kind, name)


@pytest.mark.parametrize("seed", [1, 2])
def test_decisions(seed: int) -> None:
    skip_without("java")
    rng = random.Random(seed)
    lines: list[str] = []
    ours: list[tuple[bool, int]] = []
    for _ in range(300):
        world = _World(rng, lines)
        for _ in range(rng.randrange(1, 25)):
            world.change()
            ours.extend((world.ask(), len(lines)) for _ in range(8))
    command = program(Path(__file__).with_name("Authorizer.java"))
    result = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, encoding="utf-8", timeout=2 * LONG
    )
    assert result.returncode == 0, result.stderr[-2000:]
    theirs = [line == "ALLOWED" for line in result.stdout.splitlines() if line in ("ALLOWED", "DENIED")]
    assert len(theirs) == len(ours)
    assert 0.1 < sum(theirs) / len(theirs) < 0.9
    for (mine, end), judged in zip(ours, theirs, strict=True):
        if mine is not judged:
            begin = max(number for number in range(end) if lines[number].startswith("reset"))
            acls = [line for line in lines[begin:end] if not line.startswith(("ask", "any"))]
            pytest.fail("\n".join([*acls, lines[end - 1], f"kbroker allows it: {mine}"]), pytrace=False)
