"""A Spark job: it copies the large orders, all that are there."""


def copy_large_orders(spark, bootstrap_servers, source, sink, checkpoint):
    kafka = {"kafka.bootstrap.servers": bootstrap_servers}
    orders = spark.readStream.format("kafka").options(**kafka, subscribe=source, startingOffsets="earliest").load()
    large = orders.where("CAST(CAST(value AS STRING) AS INT) >= 100").select("value")
    there = large.writeStream.format("kafka").options(**kafka, topic=sink, checkpointLocation=checkpoint)
    there.trigger(availableNow=True).start().awaitTermination()
