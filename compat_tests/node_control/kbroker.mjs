// A real Kafka broker, or a cluster, for tests: starts the installed command kbroker and asks its control. A file to copy.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** An answer that is not 200: the control's one line, and what a wait has seen last. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{ error: string, code?: string, seen?: any }} answer
   */
  constructor(status, answer) {
    super(answer.error)
    this.name = 'Problem'
    this.status = status
    this.code = answer.code
    this.seen = answer.seen
  }
}

/** Requests that go wrong, until `undo`. */
export class Fault {
  /**
   * @param {Kbroker} kafka
   * @param {number} number
   */
  constructor(kafka, number) {
    this.kafka = kafka
    this.path = `/faults/${number}`
  }

  /**
   * Waits until so many requests have met it.
   * @param {number} [hits]
   */
  async waitForHits(hits = 1) {
    await this.kafka.ask('POST', `${this.path}/wait`, { hits })
  }

  /**
   * Takes the requests that wait, of an 'intercept', once there are any; none after so many seconds. Decide about each.
   * @param {number} [timeout]
   * @returns {Promise<Record<string, any>[]>} each with its `number`, and its `body` in base64
   */
  async take(timeout = 30) {
    return (await this.kafka.ask('POST', `${this.path}/take`, { timeout })).requests
  }

  /**
   * Decides about a request that waits.
   * @param {number} request
   * @param {'pass' | 'answer' | 'close'} action
   * @param {string} [body] in base64: of an answer, or of a request that is changed
   */
  async decide(request, action, body) {
    await this.kafka.ask('POST', `${this.path}/decide`, { request, action, body })
  }

  /**
   * Ends it; the number of requests that have met it.
   * @returns {Promise<number>}
   */
  async undo() {
    return (await this.kafka.ask('DELETE', this.path)).hits
  }
}

/**
 * The number of nodes, 1 unless told; whether topics and groups stay from one test to the next; words for the command line,
 * such as `['-o', 'num.partitions=6']` or `['--faults', FILE]`; the words by which kbroker is run (or KBROKER_COMMAND).
 * @typedef {{ nodes?: number, keepTopics?: boolean, options?: string[], command?: string[] }} Options
 */

/**
 * The hooks of a test runner.
 * @typedef {(run: () => Promise<void>, timeout?: any) => unknown} Hook
 */

export class Kbroker {
  /** What clients have for bootstrap.servers; of kafkajs, `brokers` is `bootstrapServers.split(',')`. */
  bootstrapServers = ''
  /** Where the control is; /openapi.json there tells all verbs. */
  controlUrl = ''
  /** @type {import('node:child_process').ChildProcess | undefined} */
  #process
  #directory = ''

  /** @param {Options} [options] */
  constructor(options = {}) {
    this.options = options
  }

  /**
   * Has it live as long as a file's tests, and be as at the beginning after each of them.
   * @param {{ beforeAll: Hook, afterEach: Hook, afterAll: Hook }} hooks of Vitest and Jest; of node:test `{ beforeAll: before, afterEach, afterAll: after }`
   * @param {any} [limit] as the runner's hooks take one
   */
  during(hooks, limit) {
    hooks.beforeAll(async () => void (await this.start()), limit)
    hooks.afterEach(() => this.reset(), limit)
    hooks.afterAll(() => this.close(), limit)
    return this
  }

  /** Starts it; it is there once clients are served. */
  async start() {
    const { nodes = 1, options = [], command = (process.env.KBROKER_COMMAND ?? 'kbroker').trim().split(/\s+/) } = this.options
    this.#directory = await mkdtemp(join(tmpdir(), 'kbroker-'))
    const words = nodes === 1
      ? ['start', '--log-level', 'warning', '--data-dir', this.#directory]
      : ['up', '-n', String(nodes), '--data', this.#directory]
    words.push('--port', '0', '--control', '0', '--until-eof', ...options) // it ends with this process
    const child = spawn(command[0], [...command.slice(1), ...words], { stdio: ['pipe', 'pipe', 'inherit'] })
    try {
      await once(child, 'spawn')
    } catch (error) {
      await this.close()
      throw new Error(`${command.join(' ')} cannot be run: pip install 'kbroker[metrics]', or set KBROKER_COMMAND`, { cause: error })
    }
    this.#process = child
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.startsWith('kbroker control: ')) this.controlUrl = line.slice('kbroker control: '.length)
      if (line.startsWith('kbroker ready: ')) {
        this.bootstrapServers = line.slice('kbroker ready: '.length)
        child.stdout.resume()
        return this
      }
    }
    await this.close()
    throw new Error('kbroker has ended instead of serving: standard error has why')
  }

  /** Stops it, and removes its data. */
  async close() {
    const child = this.#process
    this.#process = undefined
    if (child && child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit')
      child.kill('SIGTERM')
      await ended
    }
    if (this.#directory) await rm(this.#directory, { recursive: true, force: true })
    this.#directory = ''
  }

  /**
   * Asks the control: its answer, or a Problem if that is not 200.
   * @param {string} method
   * @param {string} path
   * @param {Record<string, any>} [given]
   * @returns {Promise<any>}
   */
  async ask(method, path, given = {}) {
    const query = method === 'GET' ? `?${new URLSearchParams(given)}` : ''
    const body = method === 'GET' ? undefined : JSON.stringify(given)
    const response = await fetch(this.controlUrl + path + query, { method, body })
    const answer = await response.json()
    if (response.status !== 200) throw new Problem(response.status, answer)
    return answer
  }

  /**
   * Has requests go wrong.
   * @param {'delay' | 'hold' | 'error' | 'drop' | 'stale-latest' | 'intercept'} kind
   * @param {Record<string, any>} which
   */
  async fault(kind, which) {
    return new Fault(this, (await this.ask('POST', `/faults/${kind}`, which)).number)
  }

  /**
   * Moves the clocks of all nodes ahead; what was due is done then.
   * @param {number} seconds
   */
  async advance(seconds) {
    await this.ask('POST', '/clock/advance', { seconds })
  }

  /**
   * Creates a topic that all nodes know.
   * @param {string} topic
   * @param {{ partitions?: number, replicas?: number, configs?: Record<string, string> }} [settings]
   */
  async createTopic(topic, settings) {
    await this.ask('POST', `/topics/${topic}/create`, settings)
  }

  /**
   * Has a node lead a partition.
   * @param {string} topic
   * @param {number} partition
   * @param {number} node
   */
  async moveLeader(topic, partition, node) {
    await this.ask('POST', `/topics/${topic}/move-leader`, { partition, to: node })
  }

  /**
   * Does something to a node.
   * @param {number} node
   * @param {'stop' | 'start' | 'kill' | 'pause' | 'resume'} action
   */
  async node(node, action) {
    await this.ask('POST', `/nodes/${node}/${action}`)
  }

  /**
   * Adds a node to a cluster; its id.
   * @returns {Promise<number>}
   */
  async addNode() {
    return (await this.ask('POST', '/nodes')).node
  }

  /**
   * Waits; a Problem of status 504 out of time.
   * @param {'group' | 'committed' | 'end' | 'drained' | 'requests'} what
   * @param {Record<string, any>} which
   */
  async waitFor(what, which) {
    return this.ask('POST', `/wait/${what}`, which)
  }

  /** Records what clients ask from now on. */
  async recordRequests() {
    await this.ask('POST', '/requests/record')
  }

  /**
   * The requests of that api, topic, group, client_id or error.
   * @param {Record<string, any>} [wanted]
   * @returns {Promise<Record<string, any>[]>}
   */
  async requests(wanted) {
    return (await this.ask('GET', '/requests', wanted)).requests
  }

  /** Has everything be as at the beginning: no faults, all nodes running, and no topics and groups unless they are kept. */
  async reset() {
    await this.ask('POST', '/reset', { topics: !this.options.keepTopics })
  }
}
