/** An answer that is not 200: the control's one line, and what a wait has seen last. */
export class Problem extends Error {
    /**
     * @param {number} status
     * @param {{ error: string, code?: string, seen?: any }} answer
     */
    constructor(status: number, answer: {
        error: string;
        code?: string;
        seen?: any;
    });
    status: number;
    code: string | undefined;
    seen: any;
}
/** Requests that go wrong, until `undo`. */
export class Fault {
    /**
     * @param {Kbroker} kafka
     * @param {number} number
     */
    constructor(kafka: Kbroker, number: number);
    kafka: Kbroker;
    path: string;
    /**
     * Waits until so many requests have met it.
     * @param {number} [hits]
     */
    waitForHits(hits?: number): Promise<void>;
    /**
     * Takes the requests that wait, of an 'intercept', once there are any; none after so many seconds. Decide about each.
     * @param {number} [timeout]
     * @returns {Promise<Record<string, any>[]>} each with its `number`, and its `body` in base64
     */
    take(timeout?: number): Promise<Record<string, any>[]>;
    /**
     * Decides about a request that waits.
     * @param {number} request
     * @param {'pass' | 'answer' | 'close'} action
     * @param {string} [body] in base64: of an answer, or of a request that is changed
     */
    decide(request: number, action: "pass" | "answer" | "close", body?: string): Promise<void>;
    /**
     * Ends it; the number of requests that have met it.
     * @returns {Promise<number>}
     */
    undo(): Promise<number>;
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
    /** @param {Options} [options] */
    constructor(options?: Options);
    /** What clients have for bootstrap.servers; of kafkajs, `brokers` is `bootstrapServers.split(',')`. */
    bootstrapServers: string;
    /** Where the control is; /openapi.json there tells all verbs. */
    controlUrl: string;
    options: Options;
    /**
     * Has it live as long as a file's tests, and be as at the beginning after each of them.
     * @param {{ beforeAll: Hook, afterEach: Hook, afterAll: Hook }} hooks of Vitest and Jest; of node:test `{ beforeAll: before, afterEach, afterAll: after }`
     * @param {any} [limit] as the runner's hooks take one
     */
    during(hooks: {
        beforeAll: Hook;
        afterEach: Hook;
        afterAll: Hook;
    }, limit?: any): this;
    /** Starts it; it is there once clients are served. */
    start(): Promise<this>;
    /** Stops it, and removes its data. */
    close(): Promise<void>;
    /**
     * Asks the control: its answer, or a Problem if that is not 200.
     * @param {string} method
     * @param {string} path
     * @param {Record<string, any>} [given]
     * @returns {Promise<any>}
     */
    ask(method: string, path: string, given?: Record<string, any>): Promise<any>;
    /**
     * Has requests go wrong.
     * @param {'delay' | 'hold' | 'error' | 'drop' | 'stale-latest' | 'intercept'} kind
     * @param {Record<string, any>} which
     */
    fault(kind: "delay" | "hold" | "error" | "drop" | "stale-latest" | "intercept", which: Record<string, any>): Promise<Fault>;
    /**
     * Moves the clocks of all nodes ahead; what was due is done then.
     * @param {number} seconds
     */
    advance(seconds: number): Promise<void>;
    /**
     * Creates a topic that all nodes know.
     * @param {string} topic
     * @param {{ partitions?: number, replicas?: number, configs?: Record<string, string> }} [settings]
     */
    createTopic(topic: string, settings?: {
        partitions?: number;
        replicas?: number;
        configs?: Record<string, string>;
    }): Promise<void>;
    /**
     * Has a node lead a partition.
     * @param {string} topic
     * @param {number} partition
     * @param {number} node
     */
    moveLeader(topic: string, partition: number, node: number): Promise<void>;
    /**
     * Does something to a node.
     * @param {number} node
     * @param {'stop' | 'start' | 'kill' | 'pause' | 'resume'} action
     */
    node(node: number, action: "stop" | "start" | "kill" | "pause" | "resume"): Promise<void>;
    /**
     * Adds a node to a cluster; its id.
     * @returns {Promise<number>}
     */
    addNode(): Promise<number>;
    /**
     * Waits; a Problem of status 504 out of time.
     * @param {'group' | 'committed' | 'end' | 'drained' | 'requests'} what
     * @param {Record<string, any>} which
     */
    waitFor(what: "group" | "committed" | "end" | "drained" | "requests", which: Record<string, any>): Promise<any>;
    /** Records what clients ask from now on. */
    recordRequests(): Promise<void>;
    /**
     * The requests of that api, topic, group, client_id or error.
     * @param {Record<string, any>} [wanted]
     * @returns {Promise<Record<string, any>[]>}
     */
    requests(wanted?: Record<string, any>): Promise<Record<string, any>[]>;
    /** Has everything be as at the beginning: no faults, all nodes running, and no topics and groups unless they are kept. */
    reset(): Promise<void>;
    #private;
}
/**
 * The number of nodes, 1 unless told; whether topics and groups stay from one test to the next; words for the command line,
 * such as `['-o', 'num.partitions=6']` or `['--faults', FILE]`; the words by which kbroker is run (or KBROKER_COMMAND).
 */
export type Options = {
    nodes?: number;
    keepTopics?: boolean;
    options?: string[];
    command?: string[];
};
/**
 * The hooks of a test runner.
 */
export type Hook = (run: () => Promise<void>, timeout?: any) => unknown;
