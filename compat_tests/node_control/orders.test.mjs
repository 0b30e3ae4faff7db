import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { Kbroker } from './kbroker.mjs'
import { read, write } from './shop.mjs'

const kafka = new Kbroker().during({ beforeAll, afterEach, afterAll })

test('what is refused for a moment is sent again', async () => {
  await kafka.createTopic('orders')
  const fault = await kafka.fault('error', { api: 'Produce', code: 'NOT_LEADER_OR_FOLLOWER', times: 2 })
  await write(kafka.bootstrapServers, 'orders', 'two pizzas')
  expect(await fault.undo()).toBe(2)
})

test('what is forbidden is told to the program', async () => {
  await kafka.createTopic('orders')
  const fault = await kafka.fault('error', { api: 'Produce', code: 'POLICY_VIOLATION', times: 1 })
  await expect(write(kafka.bootstrapServers, 'orders', 'refused')).rejects.toThrow('policy')
  await fault.waitForHits()
  const [written] = await write(kafka.bootstrapServers, 'orders', 'taken')
  expect(written.baseOffset).toBe('0')
})

test('the test decides about a request that waits', async () => {
  await kafka.createTopic('orders')
  const fault = await kafka.fault('intercept', { api: 'Produce', topic: 'orders', times: 1 })
  const writing = write(kafka.bootstrapServers, 'orders', 'after a while')
  const [request] = await fault.take()
  await fault.decide(request.number, 'pass')
  const [written] = await writing
  expect(written.baseOffset).toBe('0')
})

test('the program reads all and commits', async () => {
  await kafka.createTopic('orders') // the test before has left none
  await write(kafka.bootstrapServers, 'orders', 'two pizzas')
  await kafka.recordRequests()
  const values = await read(kafka.bootstrapServers, 'orders', 'billing', 1, async () => {
    await kafka.waitFor('group', { group: 'billing', state: 'Stable', members: 1 })
  })
  expect(values).toEqual(['two pizzas'])
  await kafka.waitFor('drained', { topic: 'orders', group: 'billing' })
  expect(await kafka.requests({ api: 'OffsetCommit', group: 'billing' })).toHaveLength(1)
})

test('records are gone after a week', async () => {
  await kafka.createTopic('orders')
  await write(kafka.bootstrapServers, 'orders', 'old')
  await kafka.advance(8 * 86_400)
  expect(await kafka.ask('POST', '/topics/orders/apply-retention')).toEqual({ partitions: { 0: 1 } })
})

test('what is wrong is told in one line', async () => {
  const wrong = kafka.fault('error', { api: 'Produce', code: 'NONE"' })
  await expect(wrong).rejects.toMatchObject({ status: 400, message: `Kafka has no error 'NONE"'` })
  await kafka.waitFor('group', { group: 'billing', state: 'Dead' }) // its coordinator is there
  const late = kafka.waitFor('group', { group: 'billing', members: 2, timeout: 0 })
  await expect(late).rejects.toMatchObject({ status: 504, seen: { members: [] } })
  await expect(kafka.node(1, 'kill')).rejects.toMatchObject({ status: 409 })
})

test('a command that is not there, and one that ends, are told', async () => {
  const missing = new Kbroker({ command: ['no-kbroker'] })
  await expect(missing.start()).rejects.toThrow(`no-kbroker cannot be run: pip install 'kbroker[metrics]'`)
  const ending = new Kbroker({ command: ['echo'] })
  await expect(ending.start()).rejects.toThrow('kbroker has ended instead of serving')
})
