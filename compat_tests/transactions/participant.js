// A process that holds transactional producers of kafkajs; the commands are those of participant.py.
'use strict'

const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const kafka = new Kafka({
  clientId: 'kafkajs', brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING,
  retry: { retries: 30, initialRetryTime: 50, maxRetryTime: 1000 }, connectionTimeout: 30000,
})
const producers = {}
const transactions = {}

const commands = {
  async open({ producer: name, transactional_id: transactionalId, timeout_ms: transactionTimeout }) {
    const producer = kafka.producer({ transactionalId, transactionTimeout, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    // It initializes with the first transaction, which would fence too late for the tests.
    await (await producer.transaction()).abort()
    producers[name] = producer
  },

  async begin({ producer }) {
    transactions[producer] = await producers[producer].transaction()
  },

  async send({ producer, topic, partition, values }) {
    await transactions[producer].send({ topic, messages: values.map((value) => ({ value, partition })) })
  },

  async commit({ producer }) {
    await transactions[producer].commit()
  },

  async abort({ producer }) {
    await transactions[producer].abort()
  },

  async send_offsets({ producer, group, offsets }) {
    await transactions[producer].sendOffsets({
      consumerGroupId: group,
      topics: offsets.map(([topic, partition, offset]) => ({ topic, partitions: [{ partition, offset: String(offset) }] })),
    })
  },

  async copy({ producer, group, source, target, count }) {
    const consumer = kafka.consumer({ groupId: group, readUncommitted: false, maxWaitTimeInMs: 200 })
    await consumer.connect()
    await consumer.subscribe({ topics: [source], fromBeginning: true })
    let copied = 0
    await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`${copied} records copied in 180 s`)), 180000).unref()
      consumer.run({
        autoCommit: false,
        eachBatch: async ({ batch, resolveOffset }) => {
          if (copied >= count || !batch.messages.length) return
          const transaction = await producers[producer].transaction()
          const messages = batch.messages.map(({ value }) => ({ value, partition: batch.partition }))
          await transaction.send({ topic: target, messages })
          const last = batch.messages[batch.messages.length - 1].offset
          const partitions = [{ partition: batch.partition, offset: String(Number(last) + 1) }]
          await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
          await transaction.commit()
          resolveOffset(last)
          copied += messages.length
          if (copied >= count) resolve()
        },
      }).catch(reject)
    })
    await consumer.disconnect()
    return copied
  },

  async close({ producer }) {
    await producers[producer].disconnect()
  },
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    const reply = { id: command.id }
    try {
      reply.result = (await commands[command.op](command)) ?? null
    } catch (problem) {
      reply.error = String(problem)
    }
    process.stdout.write(JSON.stringify(reply) + '\n')
  }
  process.exit(0)
}

main()
