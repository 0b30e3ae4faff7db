"""Spark's own provider of delegation tokens, called as a cluster with Kerberos calls it, and the tokens that it leaves.

Spark's scheduler asks its providers where Hadoop's security is on (YARN, Kubernetes), never in local mode. What follows
is the same everywhere: the token lies among the user's Hadoop credentials, and the connector takes it from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


class TokenProvider:
    """`spark.kafka.clusters.<name>.*` in a running session, and its token in the credentials of this process."""

    def __init__(self, spark: Any, name: str, bootstrap: str, client: Mapping[str, str]) -> None:
        """``client`` are Kafka's client properties by which the token is asked for."""
        self._spark = spark
        self._jvm = spark._jvm
        self._name = name
        self._client = {"bootstrap.servers": bootstrap, **client}
        prefix = f"spark.kafka.clusters.{name}"
        self._settings = {
            f"{prefix}.auth.bootstrap.servers": bootstrap,
            # It is compared with each address by itself.
            f"{prefix}.target.bootstrap.servers.regex": bootstrap.replace(".", "[.]").replace(",", "|"),
            f"{prefix}.security.protocol": client["security.protocol"],
            **{f"{prefix}.{key}": value for key, value in client.items() if key.startswith("ssl.truststore.")},
            **{f"{prefix}.kafka.{key}": value for key, value in client.items() if key.startswith("sasl.")},
        }

    @property
    def _conf(self) -> Any:
        """The settings that the connector looks at: those of the running session, not a copy."""
        return self._spark.sparkContext._jsc.sc().conf()

    def __enter__(self) -> TokenProvider:
        for name, value in self._settings.items():
            self._conf.set(name, value)
        return self

    def __exit__(self, *_: object) -> None:
        # Credentials have no way back but a new user. With the token alone, the connector would miss the settings.
        self._jvm.org.apache.hadoop.security.UserGroupInformation.setLoginUser(None)
        for name in self._settings:
            self._conf.remove(name)

    def obtain(self) -> str:
        """Have the provider create a token, in place of the one before; its id."""
        jvm = self._jvm
        credentials = jvm.org.apache.hadoop.security.Credentials()
        provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        renewal = provider.obtainDelegationTokens(configuration, self._conf, credentials)
        assert renewal.isDefined(), "the provider has no token: Spark's log says why"
        [token] = jvm.java.util.ArrayList(credentials.getAllTokens())
        jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)
        return bytes(token.getIdentifier()).decode()

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        properties = self._jvm.java.util.Properties()
        for name, value in self._client.items():
            properties.setProperty(name, value)
        admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            yield admin
        finally:
            admin.close()

    def tokens(self) -> dict[str, int]:
        """Id -> ms since 1970 at which it expires, of the tokens that the broker has for this user."""
        with self._admin() as admin:
            found = list(admin.describeDelegationToken().delegationTokens().get())
            return {each.tokenInfo().tokenId(): each.tokenInfo().expiryTimestamp() for each in found}

    def renew(self, token_id: str, milliseconds: int) -> int:
        """Have a token expire so much later than now; when that is."""
        options = self._jvm.org.apache.kafka.clients.admin.RenewDelegationTokenOptions()
        with self._admin() as admin:
            hmac = self._hmac(admin, token_id)
            done = admin.renewDelegationToken(hmac, options.renewTimePeriodMs(milliseconds))
            return int(done.expiryTimestamp().get())

    def expire(self, token_id: str) -> None:
        """Have a token expire at once."""
        options = self._jvm.org.apache.kafka.clients.admin.ExpireDelegationTokenOptions()
        with self._admin() as admin:
            hmac = self._hmac(admin, token_id)
            admin.expireDelegationToken(hmac, options.expiryTimePeriodMs(-1)).expiryTimestamp().get()

    @staticmethod
    def _hmac(admin: Any, token_id: str) -> Any:
        found = list(admin.describeDelegationToken().delegationTokens().get())
        [hmac] = [each.hmac() for each in found if each.tokenInfo().tokenId() == token_id]
        return hmac
