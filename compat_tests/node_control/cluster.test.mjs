import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { Kbroker } from './kbroker.mjs'
import { read, write } from './shop.mjs'

const options = { nodes: 3, keepTopics: true, options: ['-o', 'num.partitions=2'] }
const kafka = new Kbroker(options).during({ beforeAll, afterEach, afterAll })

test('a node dies', async () => {
  await kafka.createTopic('orders', { partitions: 1 })
  await kafka.moveLeader('orders', 0, 2)
  await write(kafka.bootstrapServers, 'orders', 'before')
  await kafka.node(2, 'kill')
  await write(kafka.bootstrapServers, 'orders', 'without node 2')
  await kafka.node(2, 'start')
  expect(await kafka.waitFor('end', { topic: 'orders', offset: 2 })).toMatchObject({ offset: 2 })
})

test('a node is added', async () => {
  expect(await kafka.addNode()).toBe(4)
  expect(await read(kafka.bootstrapServers, 'orders', 'billing', 2)).toEqual(['before', 'without node 2'])
})
