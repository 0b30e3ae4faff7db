"""The names of metrics: those that published dashboards use are there, or are said to be missing."""

from __future__ import annotations

import pytest

from kbroker.observe.metrics.absent import ABSENT
from kbroker.observe.metrics.catalogue import all_families
from kbroker.observe.metrics.dialect import Dialect, Kind, group_names, mbean_names
from kbroker.observe.metrics.exposition import lines
from kbroker.observe.metrics.families import MAX_LAG
from tests.metrics.published_metric_names import PUBLISHED


@pytest.mark.parametrize("dialect", Dialect)
def test_dashboards_find_what_they_ask_for(dialect: Dialect) -> None:
    served = {family.names[dialect] for family in all_families()}
    absent = {name for names in ABSENT.values() for name in names}
    assert PUBLISHED[dialect] - served - absent == set()
    assert absent & served == set()


def test_nothing_is_called_absent_that_no_dashboard_asks_for() -> None:
    asked = set().union(*PUBLISHED.values())
    assert {name for names in ABSENT.values() for name in names} <= asked


@pytest.mark.parametrize("dialect", Dialect)
def test_a_name_has_one_meaning(dialect: Dialect) -> None:
    names = [family.names[dialect] for family in all_families()]
    assert len(names) == len(set(names))


def test_labels_as_the_rules_of_the_exporters_write_them() -> None:
    written = {dialect: "".join(lines(MAX_LAG, dialect, [(("Replica",), 3)])) for dialect in Dialect}
    name = "kafka_server_replicafetchermanager_maxlag"
    assert written[Dialect.CONFLUENT] == f'{name}{{clientid="Replica"}} 3\n'
    assert written[Dialect.STRIMZI] == written[Dialect.REPORTER] == f'{name}{{clientId="Replica"}} 3\n'


def test_the_rules_of_the_exporters() -> None:
    rate = mbean_names("server", "BrokerTopicMetrics", "BytesInPerSec", Kind.COUNTER)
    assert list(rate.values()) == [
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_bytesinpersec",
        "kafka_server_brokertopicmetrics_bytesinpersec_total",
    ]
    idle = mbean_names("server", "Pool", "AvgIdlePercent", Kind.IDLE)
    assert list(idle.values()) == [
        "kafka_server_pool_avgidle_percent",
        "kafka_server_pool_avgidlepercent_oneminuterate",
        "kafka_server_pool_avgidlepercent_total",
    ]
    group = group_names("raft-metrics", "log-end-offset", joined=(Dialect.STRIMZI,))
    assert group[Dialect.STRIMZI] == "kafka_server_raftmetrics_log_end_offset"
    assert group[Dialect.REPORTER] == "kafka_server_raft_metrics_log_end_offset"
