import pytest
from job import copy_large_orders
from kafka import KafkaProducer

from kbroker.testing import running_broker
from kbroker.testing.seen import NotInTime
from kbroker.testing.spark import spark_session


@pytest.fixture(scope="session")
def spark():
    session = spark_session("tests")  # or your own, with the connector in spark.jars.packages
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path):
    return str(tmp_path / "checkpoint")


def order(broker, topic, *amounts):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for amount in amounts:
        producer.send(topic, str(amount).encode()).get(60)
    producer.close()


def large(spark, broker, topic):
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return [int(row.value) for row in spark.read.format("kafka").options(**kafka, subscribe=topic).load().collect()]


def test_each_large_order_comes_once(spark, kafka_broker, kafka_topic, kafka_faults, checkpoint):
    order(kafka_broker, kafka_topic, 7, 100, 250)
    kafka_broker.create_topic(f"{kafka_topic}-large")
    moved = kafka_faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=kafka_topic, times=2)
    lost = kafka_faults.drop("Produce", when="after", topic=f"{kafka_topic}-large", times=1)
    for _ in range(2):  # again from its checkpoint
        copy_large_orders(spark, kafka_broker.bootstrap_servers, kafka_topic, f"{kafka_topic}-large", checkpoint)
    kafka_broker.wait_for_end(f"{kafka_topic}-large", 2)
    assert large(spark, kafka_broker, f"{kafka_topic}-large") == [100, 250]
    assert (moved.hits, lost.hits) == (2, 1)


def test_orders_that_expired_unread_end_the_job(spark, checkpoint):
    with running_broker() as broker:  # of its own, as time moves
        order(broker, "orders", 100)
        copy_large_orders(spark, broker.bootstrap_servers, "orders", "large", checkpoint)
        order(broker, "orders", 250)
        broker.advance(8 * 86_400)
        broker.faults.apply_retention("orders")
        with pytest.raises(Exception, match="Some data may have been lost"):
            copy_large_orders(spark, broker.bootstrap_servers, "orders", "large", checkpoint)


def test_a_job_asks_for_what_it_reads(spark, checkpoint):
    with running_broker() as broker:
        order(broker, "orders", 100)
        broker.record_requests()
        copy_large_orders(spark, broker.bootstrap_servers, "orders", "large", checkpoint)
        broker.wait_for_requests(1, api="Fetch", topic="orders")
        assert broker.requests(api="Produce", topic="large").count == 1
        assert broker.requests(api="OffsetCommit").count == 0  # its offsets are in the checkpoint
        with pytest.raises(NotInTime, match=r"large-0 does not end at 5 after .*: at 1"):
            broker.wait_for_end("large", 5, timeout=0)
        with pytest.raises(ValueError, match="Kafka has no error 'LOST'"):
            broker.faults.error("Fetch", "LOST")


def test_a_node_dies(spark, kafka_cluster, checkpoint):
    for topic in ("orders", "large"):
        kafka_cluster.create_topic(topic, partitions=1)
    order(kafka_cluster, "orders", 100, 250)
    kafka_cluster.move_leader("orders", to=2)
    kafka_cluster.change_node(2, "kill")
    copy_large_orders(spark, kafka_cluster.bootstrap_servers, "orders", "large", checkpoint)
    assert large(spark, kafka_cluster, "large") == [100, 250]
