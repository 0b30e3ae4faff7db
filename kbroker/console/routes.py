"""The paths of the page's questions. Whatever changes something is a POST."""

from __future__ import annotations

from typing import Final

from kbroker.console.api import access, brokers, copies, groups, overview, records, session, topics, transactions
from kbroker.console.call import Handler

API: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/api/session", session.describe_session),
    ("POST", "/api/sign-in", session.sign_in),
    ("POST", "/api/sign-out", session.sign_out),
    ("GET", "/api/overview", overview.describe_overview),
    ("GET", "/api/broker", brokers.describe_broker),
    ("GET", "/api/topics", topics.list_page),
    ("GET", "/api/topics/tree", topics.list_branches),
    ("GET", "/api/topic", topics.describe_topic),
    ("GET", "/api/topic/configs", topics.describe_topic_configs),
    ("GET", "/api/topic/groups", topics.describe_topic_groups),
    ("GET", "/api/topic/held", transactions.list_held),
    ("POST", "/api/topic/create", topics.create_topic),
    ("POST", "/api/topic/delete", topics.delete_topic),
    ("POST", "/api/topic/config", topics.change_topic_config),
    ("POST", "/api/topic/partitions", topics.add_partitions),
    ("POST", "/api/topic/abort-hanging", transactions.abort_held),
    ("GET", "/api/records", records.list_records),
    ("GET", "/api/record", records.describe_record),
    ("GET", "/api/records/export", records.export_records),
    ("GET", "/api/records/tail", records.tail_records),
    ("POST", "/api/records/produce", records.produce_record),
    ("POST", "/api/records/replay", copies.replay_records),
    ("POST", "/api/records/import", copies.import_records),
    ("GET", "/api/groups", groups.list_all),
    ("GET", "/api/group", groups.describe_one),
    ("GET", "/api/group/reset", groups.preview_reset),
    ("POST", "/api/group/reset", groups.reset_offsets),
    ("POST", "/api/group/delete", groups.delete_one),
    ("GET", "/api/transactions", transactions.list_all),
    ("POST", "/api/transaction/abort", transactions.abort_one),
    ("GET", "/api/acls", access.list_acls),
    ("GET", "/api/acls/operations", access.list_operations),
    ("GET", "/api/acls/check", access.check_access),
    ("GET", "/api/users", access.list_users),
)
