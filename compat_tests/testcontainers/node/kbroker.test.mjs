import assert from "node:assert";
import test from "node:test";
import { KafkaContainer } from "@testcontainers/kafka";
import { Kafka, logLevel } from "kafkajs";

const image = process.env.KBROKER_IMAGE ?? "kbroker:8.4.0";

test("written and read", async () => {
  const container = await new KafkaContainer(image).withKraft().start();
  try {
    const brokers = [`${container.getHost()}:${container.getMappedPort(9093)}`];
    const kafka = new Kafka({ brokers, logLevel: logLevel.ERROR });
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic: "greetings", messages: [{ value: "hello" }] });
    await producer.disconnect();
    const consumer = kafka.consumer({ groupId: "readers" });
    await consumer.connect();
    await consumer.subscribe({ topic: "greetings", fromBeginning: true });
    const value = await new Promise((resolve) =>
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }),
    );
    await consumer.disconnect();
    assert.strictEqual(value, "hello");
  } finally {
    await container.stop();
  }
});
