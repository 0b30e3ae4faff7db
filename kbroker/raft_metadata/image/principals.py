"""Principals: client quotas, ACLs, SCRAM credentials, delegation tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbroker.raft_metadata.image.cluster import MetadataReplayError
from kbroker.types import Uuid
from kbroker.value_types import dataclass, field
from kbroker.wire.records import metadata as rec

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, entity name or None for the default) pairs."""


@dataclass(frozen=True, slots=True)
class PrincipalsImage:
    """Quotas by entity; ACLs by id; SCRAM credentials by user and mechanism; delegation tokens by id."""

    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[Uuid, rec.AccessControlEntryRecord] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], rec.UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: Mapping[str, rec.DelegationTokenRecord] = field(default_factory=dict)

    def quota_records(self) -> Iterator[rec.ClientQuotaRecord]:
        """The quotas as records."""
        for entity, quotas in self.client_quotas.items():
            for key, quota in quotas.items():
                yield rec.ClientQuotaRecord(
                    entity=[rec.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    key=key,
                    value=quota,
                )


class PrincipalsDelta:
    """The changes of quotas, ACLs, credentials and tokens."""

    def __init__(self, image: PrincipalsImage) -> None:
        self._image = image
        self._quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._acls: dict[Uuid, rec.AccessControlEntryRecord] | None = None
        self._scram: dict[tuple[str, int], rec.UserScramCredentialRecord] | None = None
        self._tokens: dict[str, rec.DelegationTokenRecord] | None = None

    @property
    def changed(self) -> bool:
        """Whether any of them did."""
        return any(own is not None for own in (self._quotas, self._acls, self._scram, self._tokens))

    def apply(self) -> PrincipalsImage:
        """The next image."""
        image = self._image
        if not self.changed:
            return image
        return PrincipalsImage(
            client_quotas=image.client_quotas if self._quotas is None else self._quotas,
            acls=image.acls if self._acls is None else self._acls,
            scram=image.scram if self._scram is None else self._scram,
            delegation_tokens=image.delegation_tokens if self._tokens is None else self._tokens,
        )

    def on_client_quota(self, record: rec.ClientQuotaRecord) -> None:
        """Set or remove a quota."""
        if self._quotas is None:
            self._quotas = {entity: dict(quotas) for entity, quotas in self._image.client_quotas.items()}
        entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=lambda pair: pair[0]))
        quotas = dict(self._quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._quotas[entity] = quotas
        else:
            self._quotas.pop(entity, None)

    def on_acl(self, record: rec.AccessControlEntryRecord) -> None:
        """Add an ACL."""
        if self._acls is None:
            self._acls = dict(self._image.acls)
        self._acls[Uuid(record.id)] = record

    def on_remove_acl(self, record: rec.RemoveAccessControlEntryRecord) -> None:
        """Remove an ACL."""
        if self._acls is None:
            self._acls = dict(self._image.acls)
        if self._acls.pop(Uuid(record.id), None) is None:
            raise MetadataReplayError(f"no ACL has the id {bytes(record.id).hex()}")

    def on_scram(self, record: rec.UserScramCredentialRecord) -> None:
        """Set a SCRAM credential."""
        if self._scram is None:
            self._scram = dict(self._image.scram)
        self._scram[record.name, record.mechanism] = record

    def on_remove_scram(self, record: rec.RemoveUserScramCredentialRecord) -> None:
        """Remove a SCRAM credential."""
        if self._scram is None:
            self._scram = dict(self._image.scram)
        self._scram.pop((record.name, record.mechanism), None)

    def on_token(self, record: rec.DelegationTokenRecord) -> None:
        """Add or change a delegation token."""
        if self._tokens is None:
            self._tokens = dict(self._image.delegation_tokens)
        self._tokens[record.token_id] = record

    def on_remove_token(self, record: rec.RemoveDelegationTokenRecord) -> None:
        """Remove a delegation token."""
        if self._tokens is None:
            self._tokens = dict(self._image.delegation_tokens)
        self._tokens.pop(record.token_id, None)
