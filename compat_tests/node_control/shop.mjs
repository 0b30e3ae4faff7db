// The program under test, as small as can be: it writes orders and reads them.
import { Kafka, logLevel } from 'kafkajs'

const client = (bootstrapServers) =>
  new Kafka({
    clientId: 'shop',
    brokers: bootstrapServers.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 60 },
  })

export async function write(bootstrapServers, topic, ...values) {
  const producer = client(bootstrapServers).producer()
  await producer.connect()
  try {
    return await producer.send({ topic, messages: values.map((value) => ({ value })) })
  } finally {
    await producer.disconnect()
  }
}

export async function read(bootstrapServers, topic, groupId, count, whenRead = async () => {}) {
  const consumer = client(bootstrapServers).consumer({ groupId })
  const values = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        eachMessage: async ({ message }) => {
          if (values.push(message.value.toString()) === count) resolve()
        },
      })
    })
    await whenRead()
  } finally {
    await consumer.disconnect()
  }
  return values
}
