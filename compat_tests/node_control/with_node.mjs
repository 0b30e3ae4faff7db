// By the test runner of Node itself.
import assert from 'node:assert/strict'
import { after, afterEach, before, test } from 'node:test'
import { Kbroker } from './kbroker.mjs'
import { read, write } from './shop.mjs'

const kafka = new Kbroker().during({ beforeAll: before, afterEach, afterAll: after })

for (const value of ['one', 'two']) {
  test(`a topic of its own: ${value}`, async () => {
    await kafka.createTopic('orders')
    await write(kafka.bootstrapServers, 'orders', value)
    assert.deepEqual(await read(kafka.bootstrapServers, 'orders', 'billing', 1), [value])
  })
}
