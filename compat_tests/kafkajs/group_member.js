// A process that holds members of consumer groups, by kafkajs. It takes one JSON command a line, and writes one JSON line
// for each reply and for each thing that happens to a member, with the time on the machine's monotonic clock: the lines of
// compat_tests/groups/member.py.
'use strict'

const readline = require('readline')
const { Kafka, logLevel, PartitionAssigners } = require('kafkajs')

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const now = () => Number(process.hrtime.bigint()) / 1e9
const members = {}

class Member {
  constructor(options) {
    this.name = options.member
    this.options = options
    this.owned = new Map() // "topic partition" -> [topic, partition]
    this.next = new Map() // the same -> the offset after the last record read
    const kafka = new Kafka({
      clientId: options.client_id || 'kafkajs', brokers: options.bootstrap.split(','), logLevel: logLevel.NOTHING,
      retry: { retries: 30, initialRetryTime: 50, maxRetryTime: 500 }, connectionTimeout: 30000,
    })
    this.consumer = kafka.consumer({
      groupId: options.group, sessionTimeout: options.session_timeout_ms, heartbeatInterval: 300,
      maxWaitTimeInMs: 100, metadataMaxAge: 500, partitionAssigners: [PartitionAssigners.roundRobin],
    })
    const { REBALANCING, GROUP_JOIN, CRASH } = this.consumer.events
    this.consumer.on(REBALANCING, () => this.revoked('revoked'))
    this.consumer.on(CRASH, ({ payload }) => this.tell('error', { text: String(payload.error) }))
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      // It tells of a rebalance that it was asked to join, but not when it had to join anew.
      this.revoked('lost')
      const partitions = Object.entries(payload.memberAssignment).flatMap(([topic, all]) => all.map((p) => [topic, p]))
      for (const each of partitions) this.owned.set(each.join(' '), each)
      this.tell('assigned', { partitions, generation: null })
    })
  }

  tell(event, more) {
    say({ event, member: this.name, at: now(), ...more })
  }

  revoked(event, at = now()) {
    const partitions = [...this.owned.values()]
    if (partitions.length) {
      this.owned.clear()
      this.tell(event, { partitions, at })
    }
  }

  async start() {
    const { topics, pattern, auto_commit: autoCommit } = this.options
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: pattern ? [new RegExp(pattern)] : topics, fromBeginning: true })
    await this.consumer.run({
      autoCommit: !!autoCommit,
      eachMessage: async ({ topic, partition, message }) => {
        const record = [topic, partition, Number(message.offset)]
        const key = `${topic} ${partition}`
        this.next.set(key, record[2] + 1)
        this.lastRead = now()
        this.tell('records', { records: [record], astray: this.owned.has(key) ? [] : [record] })
      },
    })
  }

  async commit() {
    const offsets = [...this.owned.values()]
      .filter((each) => this.next.has(each.join(' ')))
      .map(([topic, partition]) => ({ topic, partition, offset: String(this.next.get(`${topic} ${partition}`)) }))
    await this.consumer.commitOffsets(offsets)
  }

  async commit_offset({ topic, partition, offset }) {
    await this.consumer.commitOffsets([{ topic, partition, offset: String(offset) }])
  }

  async seek({ topic, partition, offset }) {
    this.consumer.seek({ topic, partition, offset: String(offset) })
  }

  async rewind() {
    for (const [topic, partition] of this.owned.values()) this.consumer.seek({ topic, partition, offset: '0' })
  }

  async close() {
    // It reads to the end of its batch, commits and leaves, all within stop(): its owning ends with the last record.
    const began = now()
    await this.consumer.stop()
    this.revoked('revoked', Math.max(began, this.lastRead || 0))
    await this.consumer.disconnect()
  }
}

async function answer(command) {
  const reply = { id: command.id }
  try {
    if (command.op === 'join') {
      members[command.member] = new Member(command)
      members[command.member].start().catch((problem) => members[command.member].tell('error', { text: String(problem) }))
    } else {
      reply.result = (await members[command.member][command.op](command)) ?? null
    }
  } catch (problem) {
    reply.error = String(problem)
  }
  say(reply)
}

const input = readline.createInterface({ input: process.stdin })
input.on('line', (line) => answer(JSON.parse(line)))
input.on('close', () => process.exit(0))
