"""The quota that holds for a client: the precedence of users, client ids and defaults."""

from __future__ import annotations

from itertools import combinations

import pytest

from kbroker.security.quotas.entities import Entity, QuotaTable, address_of

# The most particular first, and who shares it.
LEVELS: list[tuple[Entity, tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_most_particular_quota_holds(count: int) -> None:
    for chosen in combinations(range(8), count):
        table = QuotaTable({LEVELS[number][0]: {"producer_byte_rate": 1.0 + number} for number in chosen})
        limits = table.limits("u", "c")
        assert limits is not None
        assert limits.produce == (1.0 + chosen[0], LEVELS[chosen[0]][1])
        assert limits.fetch is None


def test_each_kind_of_quota_is_looked_up_by_itself() -> None:
    table = QuotaTable({(("user", "u"),): {"request_percentage": 5.0}, (("user", None),): {"consumer_byte_rate": 7.0}})
    limits = table.limits("u", "c")
    assert limits is not None
    assert limits.request == (5.0, ("u", ""))
    assert limits.fetch == (7.0, ("u", ""))
    other = table.limits("v", "c")
    assert other is not None
    assert (other.request, other.fetch) == (None, (7.0, ("v", "")))


def test_what_is_no_number_limits_nobody() -> None:
    table = QuotaTable({(("user", "u"),): {"consumer_byte_rate": float("nan")}})
    assert table.limits("u", "c") is None


def test_others_have_no_quota() -> None:
    table = QuotaTable(
        {(("user", "u"),): {"producer_byte_rate": 5.0}, (("client-id", "c"),): {"request_percentage": 1}}
    )
    assert table.limits_clients
    assert table.limits("v", "d") is None
    assert QuotaTable({}).limits("u", "c") is None
    assert not QuotaTable({}).limits_clients


def test_a_client_without_an_id_has_the_quotas_of_its_user_alone() -> None:
    everybody = QuotaTable({(("client-id", None),): {"producer_byte_rate": 5.0}})
    assert everybody.limits("u", "") is None
    users = QuotaTable({entity: {"producer_byte_rate": float(n)} for n, (entity, _) in enumerate(LEVELS)})
    limits = users.limits("u", "")
    assert limits is not None
    assert limits.produce == (2.0, ("u", ""))


def test_quotas_of_addresses() -> None:
    rates = {"10.0.0.1": 5.0, "::ffff:10.0.0.2": 6.0, "2001:DB8::0:1": 7.0, "some.host": 8.0}
    table = QuotaTable({(("ip", name),): {"connection_creation_rate": rate} for name, rate in rates.items()})
    assert table.by_ip == {"10.0.0.1": 5.0, "10.0.0.2": 6.0, "2001:db8::1": 7.0}
    assert table.ip_default is None
    assert table.limits_addresses
    assert not table.limits_clients
    assert QuotaTable({(("ip", None),): {"connection_creation_rate": 9.0}}).ip_default == 9.0
    assert address_of("localhost") is None
