"""10,000 ACLs in kbroker's authorizer: taking them over from the metadata image, and deciding by them.

In this process: a request asks once for each topic, and what a decision takes would be lost in the request's own time.
"""

from __future__ import annotations

import time

from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.raft_metadata.controller.acls import acl_of, acl_record
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.types import Uuid

COUNT = 10_000
USERS = 100
ASKED = 1_000
"""Questions that are asked again and again, as those of connected clients are."""
HOST = "127.0.0.1"


def _topic(index: int) -> str:
    return f"department-{index % 50}.topic-{index}"


def _acls() -> list[Acl]:
    """Nine of ten for a topic, one for a prefix; one of ten denies."""
    return [
        Acl(
            ResourceType.TOPIC,
            _topic(index) if index % 10 else f"department-{index % 50}.topic-{index}-",
            PatternType.LITERAL if index % 10 else PatternType.PREFIXED,
            f"User:user-{index % USERS}",
            "*",
            (AclOperation.READ, AclOperation.WRITE, AclOperation.ALL)[index % 3],
            AclPermission.DENY if index % 10 == 5 else AclPermission.ALLOW,
        )
        for index in range(COUNT)
    ]


def decisions(bench: Bench, server: Server) -> Figures:
    """Loading all records, and the mean time of a decision: of the first of its kind, and of the later ones."""
    records = [acl_record(Uuid(index.to_bytes(16, "big")), acl) for index, acl in enumerate(_acls(), 1)]
    start = time.perf_counter()
    authorizer = StandardAuthorizer(map(acl_of, records))
    loaded = time.perf_counter() - start
    principals = [KafkaPrincipal("User", f"user-{index}") for index in range(USERS)]
    asked = [(principals[index % USERS], _topic(index)) for index in range(ASKED)]

    def ask_all() -> float:
        began = time.perf_counter()
        for principal, topic in asked:
            authorizer.authorize(principal, HOST, AclOperation.READ, ResourceType.TOPIC, topic)
        return (time.perf_counter() - began) / ASKED * 1e6

    first = ask_all()
    return {"loaded_s": loaded, "first_decision_us": first, "decision_us": min(ask_all() for _ in range(20))}


ACL_WORKLOADS = (Workload("acls", f"{COUNT:,} ACLs", decisions, "alone"),)
"""Measured on kbroker alone: Apache Kafka's authorizer cannot be asked but through its requests."""
