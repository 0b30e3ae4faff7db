// Takes one JSON command a line on standard input, runs it with kafkajs, and answers with one JSON line.
// The commands are those of compat_tests/line_driver.py; the cases themselves are written there, in Python.
'use strict'

const { randomUUID } = require('crypto')
const { readFileSync } = require('fs')
const readline = require('readline')
const {
  Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, Partitioners, logLevel,
} = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

// Half a minute: a coordinator's topic is made, a leader is elected, a machine stands for a few seconds.
const PATIENCE = { retries: 34, initialRetryTime: 50, maxRetryTime: 1000 }

const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }
const encode = (value) => (value === null || value === undefined ? null : Buffer.from(value).toString('base64'))
const decode = (value) => (value === null ? null : Buffer.from(value, 'base64'))

class Refused extends Error {
  constructor(name, message, records) {
    super(message || name)
    this.type = name
    this.records = records
  }
}

// OAUTHBEARER with tokens that are asked for by client credentials.
function byToken({ mechanism, tokenUrl, username, password }) {
  const headers = {
    Authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`,
    'Content-Type': 'application/x-www-form-urlencoded',
  }
  const oauthBearerProvider = async () => {
    const answer = await fetch(tokenUrl, { method: 'POST', headers, body: 'grant_type=client_credentials' })
    return { value: (await answer.json()).access_token }
  }
  return { mechanism, oauthBearerProvider }
}

// The properties of the client for a command's security: PEM files are read here.
function secured(security) {
  if (!security) return {}
  const { ssl, sasl, retry } = security
  const read = (path) => (path === null ? undefined : readFileSync(path, 'utf8'))
  return {
    ...(ssl ? { ssl: { ca: read(ssl.ca), cert: read(ssl.identity), key: read(ssl.identity) } } : {}),
    ...(sasl ? { sasl: sasl.tokenUrl ? byToken(sasl) : sasl } : {}), ...(retry ? { retry } : {}),
  }
}

const keyOf = (command) => command.bootstrap + JSON.stringify(command.security || null)

const kafkas = {}
const kafka = (command) =>
  (kafkas[keyOf(command)] ||= new Kafka({
    clientId: 'compat', brokers: command.bootstrap.split(','), logLevel: logLevel.NOTHING,
    retry: PATIENCE, connectionTimeout: 30000, ...secured(command.security),
  }))

const admins = {}
async function admin(command) {
  const key = keyOf(command)
  admins[key] ||= (async () => {
    const made = kafka(command).admin()
    await made.connect()
    return made
  })()
  return admins[key]
}

async function describedConfigs(command, topic) {
  const told = await (await admin(command)).describeConfigs({
    includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
  })
  return told.resources[0].configEntries
}

function chunks(messages, limit) {
  const groups = []
  let size = Infinity
  for (const message of messages) {
    const length = (message.key ? message.key.length : 0) + (message.value ? message.value.length : 0) + 100
    if (size + length > limit) {
      groups.push([])
      size = 0
    }
    groups[groups.length - 1].push(message)
    size += length
  }
  return groups
}

function told(partition, message) {
  const headers = []
  for (const [name, values] of Object.entries(message.headers || {})) {
    for (const value of Array.isArray(values) ? values : [values]) headers.push([name, encode(value)])
  }
  return {
    value: encode(message.value), key: encode(message.key), headers, partition,
    timestamp: Number(message.timestamp), offset: Number(message.offset),
  }
}

const kept = {}

const OPS = {
  async kept_produce(c) {
    // One producer for all of a client's commands, which stays connected.
    kept[keyOf(c)] ||= (async () => {
      const made = kafka(c).producer({ createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 0 } })
      await made.connect()
      return made
    })()
    await (await kept[keyOf(c)]).send({ topic: c.topic, acks: -1, messages: [{ value: decode(c.value) }] })
  },
  async create_acl(c) {
    return (await admin(c)).createAcls({ acl: [c.acl] })
  },
  async describe_acls(c) {
    return (await (await admin(c)).describeAcls(c.filter)).resources
  },
  async delete_acls(c) {
    const told = await (await admin(c)).deleteAcls({ filters: [c.filter] })
    return told.filterResponses[0].matchingAcls.length
  },
  async create_topic(c) {
    const created = await (await admin(c)).createTopics({
      waitForLeaders: true,
      topics: [{
        topic: c.topic, numPartitions: c.partitions, replicationFactor: c.replication_factor,
        configEntries: Object.entries(c.configs).map(([name, value]) => ({ name, value })),
      }],
    })
    // kafkajs turns this one error into a false.
    if (!created) throw new Refused('TOPIC_ALREADY_EXISTS')
  },
  async delete_topic(c) {
    await (await admin(c)).deleteTopics({ topics: [c.topic] })
  },
  async create_partitions(c) {
    await (await admin(c)).createPartitions({ topicPartitions: [{ topic: c.topic, count: c.total }] })
  },
  async list_topics(c) {
    return (await admin(c)).listTopics()
  },
  async partition_count(c) {
    const told = await (await admin(c)).fetchTopicMetadata({ topics: [c.topic] })
    return told.topics[0].partitions.length
  },
  async describe_cluster(c) {
    const told = await (await admin(c)).describeCluster()
    return {
      cluster_id: told.clusterId, controller_id: told.controller,
      brokers: told.brokers.map((node) => ({ id: node.nodeId, host: node.host, port: node.port })),
    }
  },
  async describe_configs(c) {
    return Object.fromEntries((await describedConfigs(c, c.topic)).map((e) => [e.configName, e.configValue]))
  },
  async alter_configs(c) {
    // Only the old AlterConfigs is there, which replaces all: send what is set already (source 1) too.
    const wanted = {}
    for (const entry of await describedConfigs(c, c.topic)) {
      if (entry.configSource === 1) wanted[entry.configName] = entry.configValue
    }
    Object.assign(wanted, c.configs)
    const configEntries = Object.entries(wanted)
      .filter(([, value]) => value !== null)
      .map(([name, value]) => ({ name, value }))
    await (await admin(c)).alterConfigs({
      resources: [{ type: ConfigResourceTypes.TOPIC, name: c.topic, configEntries }],
    })
  },
  async delete_records(c) {
    // It looks the leader up in metadata that it has already, which this fetches.
    await (await admin(c)).fetchTopicOffsets(c.topic)
    await (await admin(c)).deleteTopicRecords({
      topic: c.topic, partitions: [{ partition: c.partition, offset: String(c.offset) }],
    })
  },
  async list_offset(c) {
    const a = await admin(c)
    if (typeof c.spec === 'string') {
      const told = (await a.fetchTopicOffsets(c.topic)).find((row) => row.partition === c.partition)
      return Number(c.spec === 'earliest' ? told.low : told.high)
    }
    const told = await a.fetchTopicOffsetsByTimestamp(c.topic, c.spec)
    return Number(told.find((row) => row.partition === c.partition).offset)
  },
  async produce(c) {
    const producer = kafka(c).producer({
      createPartitioner: Partitioners.DefaultPartitioner, idempotent: c.idempotent, allowAutoTopicCreation: true,
      retry: { ...PATIENCE, ...(c.idempotent ? { retries: Number.MAX_SAFE_INTEGER } : {}) },
    })
    await producer.connect()
    try {
      const messages = c.records.map((record) => ({
        key: decode(record.key), value: decode(record.value), partition: record.partition,
        timestamp: record.timestamp === null ? undefined : String(record.timestamp),
        headers: Object.fromEntries(record.headers.map(([name, value]) => [name, decode(value)])),
      }))
      const offsets = []
      // kafkajs makes one batch of all that is sent at once, so a careful user sends less than max.message.bytes.
      for (const group of chunks(messages, 1000000)) {
        const told = await producer.send({
          topic: c.topic, acks: c.acks, compression: CODECS[c.compression], timeout: c.timeout_ms, messages: group,
        })
        const next = {}
        for (const row of told || []) next[row.partition] = Number(row.baseOffset ?? -1)
        for (const message of group) {
          const offset = next[message.partition]
          if (offset === undefined || offset < 0 || c.acks === 0) {
            offsets.push(-1)
          } else {
            offsets.push(offset)
            next[message.partition] = offset + 1
          }
        }
      }
      return offsets
    } finally {
      await producer.disconnect()
    }
  },
  async produce_steps(c) {
    const transactional = c.transactional_id !== null
    const producer = kafka(c).producer({
      createPartitioner: Partitioners.DefaultPartitioner, idempotent: c.idempotent || transactional,
      ...(transactional ? { transactionalId: c.transactional_id } : {}),
      retry: { ...PATIENCE, ...(c.idempotent || transactional ? { retries: Number.MAX_SAFE_INTEGER } : {}) },
    })
    await producer.connect()
    try {
      let sender = transactional ? null : producer
      for (const step of c.steps) {
        if (sender === null) sender = await producer.transaction()
        const messages = step.records.map(([key, value]) => ({ key: decode(key), value: decode(value) }))
        // It makes one batch for a partition of all that is sent at once. It has no lock on the sequences of an
        // idempotent producer, so it does not send before the last answer; its requests have many partitions.
        for (const group of chunks(messages, c.batch_bytes * 60)) {
          await sender.sendBatch({ acks: -1, topicMessages: [{ topic: step.topic, messages: group }] })
        }
        if (step.then === 'commit') await sender.commit()
        if (step.then === 'abort') await sender.abort()
        if (transactional && (step.then === 'commit' || step.then === 'abort')) sender = null
      }
    } finally {
      await producer.disconnect()
    }
  },
  async consume(c) {
    const consumer = kafka(c).consumer({
      groupId: c.group, allowAutoTopicCreation: false, maxWaitTimeInMs: 200,
      readUncommitted: c.isolation === 'read_uncommitted',
    })
    const records = []
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [c.topic], fromBeginning: true })
      await new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Refused('READ_TIMEOUT', '', records)), c.timeout_ms)
        consumer.on('consumer.crash', ({ payload }) => payload.restart || reject(payload.error))
        consumer.run({
          autoCommit: false,
          eachMessage: async ({ partition, message }) => {
            if (records.length >= c.count) return
            records.push(told(partition, message))
            if (records.length >= c.count) {
              clearTimeout(timer)
              resolve()
            }
          },
        }).catch(reject)
      })
      const next = {}
      for (const { partition, offset } of records) next[partition] = offset + 1
      await consumer.commitOffsets(Object.entries(next).map(([partition, offset]) => ({
        topic: c.topic, partition: Number(partition), offset: String(offset),
      })))
      return records
    } finally {
      await consumer.disconnect().catch(() => {})
    }
  },
  async read(c) {
    const topics = await (await admin(c)).listTopics()
    if (!topics.includes(c.topic)) throw new Refused('UNKNOWN_TOPIC_OR_PARTITION', c.topic)
    let start = c.start
    if (typeof start === 'string') {
      const told = (await (await admin(c)).fetchTopicOffsets(c.topic)).find((row) => row.partition === c.partition)
      start = start === 'earliest' ? told.low : told.high
    }
    // kafkajs has no way to read without a group: one of its own, and a seek.
    const consumer = kafka(c).consumer({
      groupId: `compat-${randomUUID()}`, allowAutoTopicCreation: false, maxWaitTimeInMs: c.max_wait_ms,
      minBytes: c.min_bytes,
      ...(c.max_bytes === null ? {} : { maxBytes: c.max_bytes }),
      ...(c.max_partition_bytes === null ? {} : { maxBytesPerPartition: c.max_partition_bytes }),
    })
    const records = []
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [c.topic], fromBeginning: true })
      await new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Refused('READ_TIMEOUT', '', records)), c.timeout_ms)
        const first = BigInt(start)
        consumer.on('consumer.crash', ({ payload }) => payload.restart || reject(payload.error))
        consumer.run({
          autoCommit: false,
          eachMessage: async ({ topic, partition, message }) => {
            // What was fetched before the seek took hold.
            if (partition !== c.partition || BigInt(message.offset) < first || records.length >= c.count) return
            records.push(told(partition, message))
            if (records.length >= c.count) {
              clearTimeout(timer)
              resolve()
            }
          },
        }).catch(reject)
        consumer.seek({ topic: c.topic, partition: c.partition, offset: String(start) })
      })
      return records
    } finally {
      // On several nodes its fetcher of a node that leads nothing of the topic sleeps for max.wait, and this waits for it.
      consumer.disconnect().catch(() => {})
    }
  },
}

function rootCause(error) {
  for (let depth = 0; depth < 10; depth++) {
    if (error.errors && error.errors.length) error = error.errors[0]
    else if (error.partitions && error.partitions.length && error.partitions[0].error) error = error.partitions[0].error
    else if (error.cause) error = error.cause
    else break
  }
  return error
}

async function answer(command) {
  try {
    const result = await OPS[command.op](command)
    return { id: command.id, result: result === undefined ? null : result }
  } catch (problem) {
    const error = rootCause(problem)
    return { id: command.id, error: error.type || error.name, message: error.message, records: error.records }
  }
}

zstd.init().then(() => {
  const input = readline.createInterface({ input: process.stdin, crlfDelay: Infinity })
  input.on('line', async (line) => {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + '\n')
  })
  input.on('close', () => process.exit(0))
})
