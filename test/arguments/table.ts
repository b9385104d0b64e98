/** Every exported function, constructor and method, with the legal values of its arguments and options. */
import * as effects from "@x/effects";
import type { LeaderElection, LeaderTerm } from "@x/leader";
import * as leader from "@x/leader";
import * as nodeCron from "@x/leader/node-cron";
import type { Schedule } from "@x/leader/scheduler";
import * as scheduler from "@x/leader/scheduler";
import * as compat from "@x/node-redlock";
import * as compat4 from "@x/node-redlock/v4";
import type { Lock } from "@x/redlock-core";
import * as core from "@x/redlock-core";
import * as glide from "@x/redlock-core/glide";
import * as protocol from "@x/redlock-core/protocol";
import * as semaphore from "@x/semaphore";
import * as workers from "@x/workers";
import * as partitions from "@x/workers/partitions";
import {
  boolean,
  callback,
  date,
  having,
  integer,
  type Legal,
  never,
  number,
  oneOf,
  optional,
  orInfinity,
  resourceName,
  resources,
  signal,
  text,
  texts,
} from "./values.ts";

/** The objects whose methods are called, one of each class. */
export interface Subjects {
  readonly node: core.LockNode;
  readonly redlock: core.Redlock;
  readonly lock: Lock;
  readonly protocol: protocol.RedlockProtocol;
  readonly keys: protocol.RedlockProtocol["keys"];
  readonly lease: protocol.Lease;
  readonly embedded: protocol.EmbeddedLocks;
  readonly fenced: core.Fenced;
  readonly semaphore: semaphore.Semaphore;
  readonly access: semaphore.Access;
  readonly latch: semaphore.CountDownLatch;
  readonly compatClient: compat.Client;
  readonly compat: compat.Redlock;
  readonly compatLock: compat.Lock;
  readonly compat4: compat4.Redlock;
  readonly compat4Lock: compat4.Lock;
  readonly election: LeaderElection;
  readonly term: LeaderTerm;
  readonly runCoordinator: nodeCron.RunCoordinator;
  readonly scheduler: scheduler.LeaderScheduler;
  readonly schedule: Schedule;
  readonly queue: workers.ExclusiveQueue;
  readonly worker: workers.ExclusiveWorker;
  readonly database: effects.Database;
  readonly effects: effects.Effects;
  readonly relay: effects.OutboxRelay;
  readonly partitionedQueue: partitions.PartitionedQueue;
  readonly partitionedWorker: partitions.PartitionedWorker;
  readonly connection: object;
}

export interface Parameter {
  /** The name of the parameter in the error message. Default: its name. */
  readonly says?: string | RegExp;
  readonly legal?: Legal;
  /** Options, each with its rule. `legal` is then unnecessary. */
  readonly options?: Readonly<Record<string, Legal>>;
  /** A legal value. For options, the required options. */
  readonly right?: unknown;
}

export interface TableEntry {
  readonly call: (subjects: Subjects, args: readonly never[]) => unknown;
  /** In the order of the call. */
  readonly parameters: Readonly<Record<string, Parameter>>;
}

const NONE: TableEntry["parameters"] = {};
const nothing = (): undefined => undefined;
const script = protocol.defineScript("s", "return 1");

const emptyList = optional((value) => Array.isArray(value) && value.length === 0);

const resource: Parameter = { legal: resourceName, right: "r" };
const listOfResources: Parameter = { legal: resources, right: "r", says: /resources?/ };
const timeout = optional(orInfinity(integer(0)));
const ttl = optional(integer(50, 3_600_000));
const maxHold = optional(orInfinity(integer(1)));
const place = optional(integer(0));
const perTry = { ttl, signal: optional(signal), autoExtend: optional(boolean), maxHold };
const perCall = { ...perTry, timeout };
const placed = { ...perTry, place };
const reentrancy = optional(oneOf("refuse", "join", "wait"));
const name4096 = text(1, 4_096);
const ms0 = optional(integer(0));
const ms1 = optional(integer(1));

const hasControl = (value: unknown): boolean =>
  Array.from(value as string).some((letter) => letter < " " || letter === "\u007f");

/** Calls a method of a subject. */
const method =
  (subject: keyof Subjects, name: string) =>
  (subjects: Subjects, args: readonly never[]): unknown => {
    const target = subjects[subject] as unknown as Readonly<Record<string, (...given: readonly never[]) => unknown>>;
    return (target[name] as (...given: readonly never[]) => unknown).call(target, ...args);
  };

function methods(
  subject: keyof Subjects,
  prefix: string,
  entries: Readonly<Record<string, TableEntry["parameters"]>>,
): Readonly<Record<string, TableEntry>> {
  return Object.fromEntries(
    Object.entries(entries).map(([name, parameters]) => [
      `${prefix}.${name}`,
      { call: method(subject, name), parameters },
    ]),
  );
}

const make =
  (Made: new (...args: never[]) => unknown): TableEntry["call"] =>
  (_, args) =>
    new Made(...args);

/** The URLs of values.ts, which are legal for a node. */
const isNode: Legal = (value) =>
  value instanceof URL ||
  (typeof value === "string" && /^redis:\/\/[^:]*:[^@]*@host:6379$/.test(value)) ||
  (Array.isArray(value) && value.length > 0 && value.every(isNode));

/** Values that BullMQ accepts as a connection. */
const isConnection: Legal = (value) => {
  if (Object.prototype.toString.call(value) !== "[object Object]") return false;
  const { host, port } = { ...(value as Readonly<Record<string, unknown>>) };
  return host !== 5 && port !== "abc" && !("duplicate" in (value as object));
};

const compatSettings = {
  driftFactor: optional(number(0, 0.5)),
  retryCount: optional((value) => typeof value === "number" && !Number.isNaN(value)),
  retryDelay: optional(Number.isFinite),
  retryJitter: optional(Number.isFinite),
  automaticExtensionThreshold: optional(Number.isFinite),
};
const isOptions: Legal = (value) => value === undefined || Object.prototype.toString.call(value) === "[object Object]";
/** Values that can be iterated, and contain or may contain no client. */
const isWithoutClients: Legal = (value) =>
  value === "" ||
  value instanceof Map ||
  (value instanceof Set && value.size === 0) ||
  (Array.isArray(value) && value.length === 0);
const isLabels: Legal = (value) =>
  isOptions(value) &&
  Object.entries(value ?? {}).every(([name, given]) => /^[a-zA-Z_]\w*$/.test(name) && typeof given === "string");
const keyPolicy: Parameter = {
  right: { concurrency: 2 },
  options: { concurrency: optional(integer(1, 100)), rate: isOptions, maxWaiting: isOptions },
};
const settings: Parameter = { options: compatSettings };
const anything: Parameter = { legal: () => true };
const compat4Lock: Parameter = { legal: never, right: ({ compat4Lock: lock }: Subjects) => lock, says: "lock" };
const duration: Parameter = { legal: integer(3), right: 1_000, says: "Duration" };
const compatResources: Parameter = {
  legal: (value) =>
    resources(value) || (texts(value) && (value as string[]).length > 0 && (value as string[]).every(resourceName)),
  right: ["r"],
  says: /resources?/,
};
const compatLock: Parameter = { legal: never, right: ({ compatLock: right }: Subjects) => right };

const schedule = {
  timezone: optional(oneOf("UTC")),
  catchup: optional(oneOf("none", "latest", "all")),
  catchupWindow: ms0,
  maxCatchup: optional(integer(1, 1_000)),
  overlap: optional(oneOf("skip", "bufferOne", "cancelOther", "allowAll")),
  delivery: optional(oneOf("at-most-once", "at-least-once")),
  maxAttempts: ms1,
  jitter: ms0,
  maxRunTime: ms1,
  startAt: optional(date),
  endAt: optional(date),
  paused: optional(boolean),
};
const scheduleName: Parameter = {
  legal: (value) => text(1, 200)(value) && !(value as string).includes(":"),
  right: "new",
};
const scheduleNamed: Parameter = { legal: text(), right: "schedule", says: "name" };
const handler: Parameter = { legal: callback, right: nothing };
const isKey: Legal = (value) => text(1, 512)(value) && !hasControl(value);
const key: Parameter = { legal: isKey, right: "k" };
const event = (...names: readonly string[]): Parameter => ({ legal: oneOf(...names), right: names[0] });
const keyOption: Legal = (value) =>
  callback(value) || (text(1)(value) && !hasControl(value) && !/^\.|\.$|\.\./.test(value as string));
const queueName: Parameter = { legal: (value) => text(1, 256)(value) && !/[:{}]/.test(value as string), right: "q" };
const partitionCount: Parameter = { legal: integer(1, 1_024), right: 2 };
const division = { partitions: integer(1, 1_024), prefix: optional(text(1, 256)) };
const jobState = optional(oneOf("parked", "waiting", "delayed", "all"));
const limit: Parameter = { options: { limit: ms1 } };
const jobId: Parameter = { legal: text(1), right: "1" };

const cancelReason: Parameter = { legal: optional(text(0, 10_000)) };

/** Methods that a queue and a queue in partitions share. */
const operators: Readonly<Record<string, TableEntry["parameters"]>> = {
  listKeys: { options: limit },
  jobsOf: { key, options: { options: { limit: ms1, state: jobState } } },
  removeJobs: { key, options: { options: { state: jobState } } },
  cancelKey: { key, reason: cancelReason, options: { options: { remove: optional(boolean) } } },
  pauseKey: {
    key,
    reason: { legal: optional(text(0, 10_000)) },
    options: { options: { for: optional(integer(1, 366 * 86_400_000)) } },
  },
  resumeKey: { key },
  readKey: { key, options: { options: { limit: optional(integer(0, 100)) } } },
  overview: {
    options: {
      options: {
        keys: ms0,
        read: optional((value) => Array.isArray(value) && value.length <= 5 && value.every(isKey)),
      },
    },
  },
  setKeyPolicy: { key, policy: keyPolicy },
  getKeyPolicy: { key },
  removeKeyPolicy: { key },
  listKeyPolicies: { options: limit },
  setExclusion: {
    mode: { legal: oneOf("on", "watch"), right: "on" },
    options: { options: { force: optional(boolean) } },
  },
  exclusion: { options: { options: { limit: optional(integer(0, 100)) } } },
  setups: NONE,
  counts: NONE,
  exportPrometheusMetrics: { labels: { legal: isLabels, right: {} } },
  check: NONE,
};

const onNode: Parameter = { legal: never, right: ({ redlock }: Subjects) => redlock, says: "redlock" };
const named: Parameter = { legal: resourceName, right: "n", says: "name" };
const count = integer(1, 1_000_000);
const fewPermits = optional(integer(1, 2));
const leases = { ttl, timeout, autoExtend: optional(boolean), maxHold };
const perAccess = { ...leases, signal: optional(signal) };

export const TABLE: Readonly<Record<string, TableEntry>> = {
  "protocol.defineScript": {
    call: (_, [name, source]) => protocol.defineScript(name as never, source as never),
    parameters: { name: { legal: text(1), right: "n" }, source: { legal: text(), right: "return 1" } },
  },
  "core.fence": {
    call: (_, args) => core.fence(...(args as unknown as Parameters<typeof core.fence>)),
    parameters: {
      client: { legal: having("eval", "evalsha"), right: { eval: nothing, evalsha: nothing } },
      keys: { legal: (value) => typeof value === "string" || texts(value), right: "k" },
      fencingToken: { legal: integer(1), right: 5 },
      options: { options: { keepFor: ms1 } },
    },
  },
  "core.logTo": {
    call: (_, args) => core.logTo(...(args as unknown as Parameters<typeof core.logTo>))(),
    parameters: {
      logger: {
        legal: having("debug", "info", "warn", "error"),
        right: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
      },
    },
  },
  "core.new Redlock": {
    call: make(core.Redlock),
    parameters: {
      nodes: { legal: isNode, right: ({ node }: Subjects) => [node], says: /nodes?/ },
      options: {
        options: {
          ttl: optional(integer(50, 86_400_000)),
          maxTtl: optional(integer(50, 86_400_000)),
          driftFactor: optional(number(0, 0.5)),
          nodeTimeout: optional(integer(1, 86_400_000)),
          timeout,
          keyPrefix: optional(text()),
          name: optional(text(0, 200)),
          autoExtend: optional(boolean),
          maxHold,
          reentrancy,
          quarantine: optional(boolean),
          retryDelay: optional(integer(0, 86_400_000)),
          retryJitter: optional(integer(0, 86_400_000)),
          fenceTtl: ms1,
          clock: optional(having("schedule", "defer")),
          random: optional(having("token")),
        },
      },
    },
  },
  ...methods("redlock", "core.Redlock", {
    acquire: { resources: listOfResources, options: { options: perCall } },
    tryAcquire: { resources: listOfResources, options: { options: { ...perTry, timeout: oneOf(undefined) } } },
    using: { resources: listOfResources, routine: handler, options: { options: { ...perCall, reentrancy } } },
    inspect: { resource },
    forceRelease: { resource },
    check: NONE,
    on: {
      event: event(
        "acquired",
        "acquireFailed",
        "refused",
        "extended",
        "extendFailed",
        "released",
        "lost",
        "nodeChanged",
      ),
      listener: handler,
    },
    close: NONE,
  }),
  ...methods("lock", "core.Lock", {
    remaining: NONE,
    isHeld: NONE,
    assertHeld: { minRemaining: { legal: optional(number(0)) } },
    extend: { ttl: { legal: ttl } },
    release: NONE,
  }),
  ...methods("protocol", "protocol.RedlockProtocol", {
    acquire: { resource, options: { options: { ...placed, timeout } }, note: { legal: text(), right: "n" } },
    acquireAt: { resources: listOfResources, options: { options: { ...placed, timeout } } },
    tryAcquireAt: { resources: listOfResources, options: { options: { ...placed, timeout: oneOf(undefined) } } },
    waitForTurn: { resource, options: { options: { place, signal: optional(signal) } } },
    stepsOf: {
      resources: {
        ...listOfResources,
        legal: (value) => resources(Array.isArray(value) ? [...new Set(value)] : value),
      },
    },
    placeAt: { wallMs: { legal: number(0, Number.MAX_SAFE_INTEGER), right: 0 } },
    newToken: NONE,
    namesOf: { clients: { legal: texts, right: [] } },
    run: {
      script: { legal: never, right: script },
      request: { options: { keys: texts, args: texts }, right: { keys: [], args: [] }, says: "request" },
      options: { options: { enough: optional(callback) } },
    },
    subscribe: { channel: { legal: text(1), right: "c" }, listener: handler },
  }),
  ...methods("keys", "protocol.LockKeys", {
    checkResource: { resource },
    lockKey: { resource },
    sideKey: {
      resource,
      name: { legal: (value) => text(1)(value) && /^(.*:)?fence$/s.test(value as string), right: "fence" },
    },
    linesKey: { resource },
    channel: { resource, name: { legal: text(1), right: "n" } },
    keyInSlot: { slot: { legal: integer(0, 16_383), right: 0 } },
  }),
  ...methods("lease", "protocol.Lease", {
    keep: {
      policy: { legal: having("dueMs", "retryMs", "timeoutMs", "windowMs"), right: protocol.everyPeriod(60_000) },
    },
    releaseBy: { perform: handler },
    leave: NONE,
  }),
  ...methods("embedded", "protocol.EmbeddedLocks", { newToken: NONE }),
  ...methods("fenced", "core.Fenced", {
    eval: { script: { legal: text(), right: "" }, keys: { legal: texts, right: [] }, args: { legal: optional(texts) } },
    get: { key: { legal: text(), right: "k", says: "key" } },
    set: {
      key: { legal: text(), right: "k", says: "key" },
      value: { legal: (value) => ["string", "number"].includes(typeof value), right: "v", says: /value|args/ },
    },
  }),
  "compat.new Redlock": {
    call: make(compat.Redlock),
    parameters: {
      clients: {
        // Without a client, node-redlock's own error is thrown.
        legal: isWithoutClients,
        right: ({ compatClient }: Subjects) => [compatClient],
        says: /clients?|node/,
      },
      settings: { options: { ...compatSettings, nodeTimeout: ms1, maxTtl: ms1 } },
      scripts: {
        options: { acquireScript: optional(never), extendScript: optional(never), releaseScript: optional(never) },
      },
    },
  },
  ...methods("compat", "compat.Redlock", {
    quit: NONE,
    acquire: { resources: compatResources, duration, settings },
    release: { lock: compatLock, settings },
    extend: { existing: compatLock, duration, settings },
    // The routine may be passed instead of the settings.
    using: {
      resources: compatResources,
      duration,
      settings: { ...settings, legal: (value) => callback(value) || isOptions(value) },
      routine: handler,
    },
  }),
  ...methods("compatLock", "compat.Lock", { release: NONE, extend: { duration } }),
  "compat4.new Redlock": {
    call: make(compat4.Redlock),
    parameters: {
      clients: {
        legal: isWithoutClients,
        right: ({ compatClient }: Subjects) => [compatClient],
        says: /clients?|node/,
      },
      // A value that is not a number counts as omitted, as in node-redlock 4.
      options: {
        options: {
          driftFactor: (value) => typeof value !== "number" || number(0, 0.5)(value),
          nodeTimeout: ms1,
          maxTtl: ms1,
        },
      },
    },
  },
  ...methods("compat4", "compat4.Redlock", {
    quit: NONE,
    ...Object.fromEntries(
      ["lock", "acquire"].map((name) => [name, { resource: compatResources, ttl: duration, callback: anything }]),
    ),
    ...Object.fromEntries(
      ["lockWithOptions", "acquireWithOptions"].map((name) => [
        name,
        { resource: compatResources, ttl: duration, options: { right: {}, legal: isOptions }, callback: anything },
      ]),
    ),
    ...Object.fromEntries(["unlock", "release"].map((name) => [name, { lock: compat4Lock, callback: anything }])),
    extend: { lock: compat4Lock, ttl: duration, callback: anything },
  }),
  ...methods("compat4Lock", "compat4.Lock", {
    unlock: { callback: anything },
    extend: { ttl: duration, callback: anything },
  }),
  "glide.glideNode": {
    call: (_, [client, configuration, options]) => {
      const node = glide.glideNode(client as never, configuration as never, options);
      return node.close();
    },
    parameters: {
      glide: {
        legal: (value) => (value ?? null) !== null && having("createClient")(value),
        right: { createClient: () => Promise.reject(new Error("no server")) },
      },
      configuration: { legal: never, right: { addresses: [{ host: "127.0.0.1", port: 1 }] } },
      options: { options: { nodeTimeout: optional(integer(1, 86_400_000)) } },
    },
  },
  "semaphore.new Semaphore": {
    call: make(semaphore.Semaphore),
    parameters: {
      redlock: onNode,
      name: named,
      options: { options: { ...leases, permits: count }, right: { permits: 2 } },
    },
  },
  ...methods("semaphore", "semaphore.Semaphore", {
    acquire: { options: { options: { ...perAccess, permits: fewPermits } } },
    tryAcquire: { options: { options: { ...perAccess, timeout: optional(never), permits: fewPermits } } },
    using: { routine: handler, options: { options: { ...perAccess, permits: fewPermits } } },
    inspect: NONE,
  }),
  "semaphore.new ReadWriteLock": {
    call: make(semaphore.ReadWriteLock),
    parameters: { redlock: onNode, name: named, options: { options: leases } },
  },
  ...methods("access", "semaphore.Access", {
    acquire: { options: { options: perAccess } },
    tryAcquire: { options: { options: { ...perAccess, timeout: optional(never) } } },
    using: { routine: handler, options: { options: perAccess } },
  }),
  "semaphore.ReadWriteLock.inspect": { call: nothing, parameters: NONE },
  "semaphore.new CountDownLatch": {
    call: make(semaphore.CountDownLatch),
    parameters: { redlock: onNode, name: named, options: { options: { keepFor: optional(integer(1_000)) } } },
  },
  ...methods("latch", "semaphore.CountDownLatch", {
    set: { count: { legal: integer(0, 1_000_000), right: 1 } },
    countDown: { id: { legal: optional(text(1, 512)) } },
    count: NONE,
    wait: { options: { options: { timeout, signal: optional(signal) } } },
  }),
  "effects.new Effects": {
    call: make(effects.Effects),
    parameters: {
      database: { legal: having("query", "transaction"), right: ({ database }: Subjects) => database },
      options: {
        options: {
          schema: optional((value) => text(1, 63)(value) && /^[A-Za-z_]\w*$/.test(value as string)),
          prefix: optional((value) => text(1, 40)(value) && /^[a-z_][a-z0-9_]*$/.test(value as string)),
          maxResult: optional(integer(2, 2 ** 28)),
          idleTimeout: optional(integer(100, 2 ** 31 - 1)),
          retries: optional(integer(0, 100)),
        },
      },
    },
  },
  ...methods("effects", "effects.Effects", {
    sql: NONE,
    migrate: NONE,
    once: {
      options: {
        options: { job: optional(never), key: text(1, 512), step: optional(text(1, 128)), lock: optional(never) },
        right: { key: "k" },
      },
      fn: handler,
    },
    transaction: { fn: handler },
    backlog: NONE,
    replay: {
      options: { options: { queue: text(1), since: date }, right: { queue: "q", since: new Date(0) } },
    },
    cleanup: { options: { options: { olderThan: optional(integer(60_000)) } } },
    on: { event: event("committed", "repeated", "fencedOff", "retried", "error"), listener: handler },
  }),
  "effects.new OutboxRelay": {
    call: make(effects.OutboxRelay),
    parameters: {
      effects: { legal: never, right: ({ effects }: Subjects) => effects },
      options: {
        right: ({ connection }: Subjects) => ({ connection, election: { name: "e", run: nothing } }),
        options: {
          election: having("run"),
          connection: (value) => (typeof value === "object" && value !== null) || callback(value),
          prefix: optional(text(1)),
          keepFor: optional(integer(0)),
        },
      },
    },
  },
  ...methods("relay", "effects.OutboxRelay", {
    on: { event: event("relayed", "relayFailed", "backlogMeasured", "error"), listener: handler },
    start: NONE,
    lead: { term: { legal: never, right: { signal: new AbortController().signal, assertCurrent: nothing } } },
    stop: NONE,
  }),
  "leader.new LeaderElection": {
    call: make(leader.LeaderElection),
    parameters: {
      redlock: { legal: never, right: ({ redlock }: Subjects) => redlock },
      options: {
        right: { name: "e" },
        options: {
          name: resourceName,
          id: optional(name4096),
          value: optional(text(0, 4_096)),
          leaseDuration: optional(integer(100, 3_600_000)),
          renewDeadline: ms1,
          retryPeriod: ms1,
          jitter: optional(number(0, 1)),
          lockDelay: optional(integer(0, 600_000)),
          eligible: optional(callback),
          renewal: optional(never),
          cooldown: (value) => value === undefined || Object.prototype.toString.call(value) === "[object Object]",
        },
      },
    },
  },
  ...methods("election", "leader.LeaderElection", {
    isLeader: NONE,
    campaign: { options: { options: { signal: optional(signal) } } },
    tryCampaign: { options: { options: { signal: optional(signal) } } },
    run: {
      task: handler,
      options: {
        options: {
          signal: optional(signal),
          onTaskError: optional(oneOf("resign", "restart", "hold")),
          onTaskEnd: optional(oneOf("resign", "hold", "stop")),
          drainTimeout: ms0,
        },
      },
    },
    requestResign: NONE,
    leader: NONE,
    stop: { options: { options: { drainTimeout: ms0 } } },
    health: { options: { options: { maxTolerableExpiredLease: ms0 } } },
    on: { event: event("elected", "ended", "error"), listener: handler },
  }),
  "leader.LeaderElection.observe": {
    call: ({ election }, [given]) => election.observe(given).next(),
    parameters: { options: { options: { signal: optional(signal) } } },
  },
  ...methods("term", "leader.LeaderTerm", {
    isCurrent: NONE,
    assertCurrent: NONE,
    remaining: NONE,
    verify: NONE,
    proclaim: { value: { legal: text(0, 4_096), right: "v" } },
    resign: { options: { options: { cooldown: ms0 } } },
  }),
  "leader.healthHandler": {
    call: (_, [options]) => leader.healthHandler(options),
    parameters: { options: { options: { elections: emptyList, workers: emptyList } } },
  },
  "nodeCron.coordinator": {
    call: (_, [locks, options]) => nodeCron.coordinator(locks as never, options),
    parameters: {
      redlock: { legal: never, right: ({ redlock }: Subjects) => redlock },
      options: { options: { claimFor: optional(integer(3_000, 3_600_000)), prefix: optional(text(0, 256)) } },
    },
  },
  ...methods("runCoordinator", "nodeCron.RunCoordinator", {
    shouldRun: { key: { legal: text(1), right: "r" }, ttlMs: { legal: integer(1), right: 30_000 } },
  }),
  "scheduler.new LeaderScheduler": {
    call: make(scheduler.LeaderScheduler),
    parameters: {
      options: {
        right: ({ election }: Subjects) => ({ election }),
        options: {
          election: never,
          keyPrefix: optional(name4096),
          timezone: optional(oneOf("UTC")),
          concurrency: ms1,
          drainTimeout: ms0,
          history: optional(integer(0, 100)),
        },
      },
    },
  },
  ...methods("scheduler", "scheduler.LeaderScheduler", {
    cron: {
      name: scheduleName,
      expression: { legal: oneOf("@daily"), right: "@daily" },
      handler,
      options: { options: schedule },
    },
    every: {
      name: scheduleName,
      ms: { legal: integer(1), right: 1_000 },
      handler,
      options: { options: { ...schedule, offset: ms0 } },
    },
    add: { name: scheduleName, next: { legal: callback, right: () => null }, handler, options: { options: schedule } },
    handle: { kind: { legal: text(1, 200), right: "k" }, handler },
    reconcile: {
      wanted: { legal: (value) => Array.isArray(value) && value.length === 0, right: [] },
      options: { options: { revision: ms0 } },
    },
    upsert: {
      name: scheduleName,
      definition: {
        right: { kind: "k", every: 1 },
        options: {
          kind: text(1, 200),
          every: integer(1),
          cron: oneOf(undefined),
          timezone: oneOf(undefined),
          data: () => true,
          options: isOptions,
        },
      },
    },
    remove: { name: scheduleNamed },
    preview: { name: scheduleNamed, count: { legal: integer(1, 1_000), right: 1 } },
    trigger: { name: scheduleNamed },
    pause: { name: scheduleNamed },
    resume: { name: scheduleNamed },
    history: { name: scheduleNamed },
    list: { options: { options: { history: optional(integer(0, 100)) } } },
    start: NONE,
    lead: { term: { legal: never, right: ({ term }: Subjects) => term } },
    stop: { options: { options: { drainTimeout: ms0 } } },
    on: { event: event("tickStarted", "error"), listener: handler },
  }),
  ...methods("schedule", "scheduler.Schedule", { next: { after: { legal: date, right: new Date(0) } }, remove: NONE }),
  "workers.new ExclusiveQueue": {
    call: make(workers.ExclusiveQueue),
    parameters: {
      name: { legal: text(1), right: "q" },
      options: {
        right: ({ connection }: Subjects) => ({ connection }),
        options: {
          key: optional(keyOption),
          acceptScripts: optional((value) => typeof value === "string" && /^[0-9a-f]{16}$/.test(value)),
        },
      },
    },
  },
  "workers.new ExclusiveWorker": {
    call: make(workers.ExclusiveWorker),
    parameters: {
      name: { legal: text(1), right: "q" },
      processor: {
        legal: (value) =>
          ["function", "string", "undefined"].includes(typeof value) || value === null || value instanceof URL,
        right: null,
      },
      options: {
        right: ({ connection }: Subjects) => ({ connection, key: "k" }),
        options: {
          key: keyOption,
          resource: optional((value) => callback(value) || value === "" || (text(1, 512)(value) && !hasControl(value))),
          withoutKey: optional(oneOf("pass", "fail")),
          redlock: optional(never),
          onFailure: optional(oneOf("skip", "block", "halt")),
          between: optional(oneOf("arrival", "rotate")),
          perKey: isOptions,
          // "merge" needs a processor.
          whenBusy: optional(oneOf("queue", "latest", "interrupt", "drop")),
          ttl: optional(integer(50, 10_000)),
          timeout: optional(integer(0, 86_400_000)),
          reentrancy: optional(oneOf("wait", "refuse", "join")),
          recheckInterval: optional(integer(100, 86_400_000)),
          acceptScripts: optional((value) => typeof value === "string" && /^[0-9a-f]{16}$/.test(value)),
          lockDuration: optional(integer(10_000, 86_400_000)),
          connection: isConnection,
        },
      },
    },
  },
  "partitions.partitionOf": {
    call: (_, args) => partitions.partitionOf(...(args as unknown as [string, number])),
    parameters: { key, partitions: partitionCount },
  },
  "partitions.queueName": {
    call: (_, args) => partitions.queueName(...(args as unknown as [string, number, number])),
    parameters: { name: queueName, partition: { legal: integer(0), right: 0 }, partitions: partitionCount },
  },
  "partitions.serverOf": {
    call: (_, args) => partitions.serverOf(...(args as unknown as [string[], number])),
    parameters: {
      servers: { legal: (value) => Array.isArray(value) && value.length > 0, right: ["a"] },
      partition: { legal: integer(0), right: 0 },
    },
  },
  "partitions.new PartitionedQueue": {
    call: make(partitions.PartitionedQueue),
    parameters: {
      name: queueName,
      options: {
        right: ({ connection }: Subjects) => ({ connection, partitions: 2, key: "k" }),
        options: { ...division, key: optional(keyOption) },
      },
    },
  },
  "partitions.new PartitionedWorker": {
    call: make(partitions.PartitionedWorker),
    parameters: {
      name: queueName,
      processor: {
        legal: (value) =>
          ["function", "string", "undefined"].includes(typeof value) || value === null || value instanceof URL,
        right: nothing,
      },
      options: {
        right: ({ connection }: Subjects) => ({ connection, partitions: 2, key: "k", autorun: false }),
        options: { ...division, key: keyOption, concurrency: optional(integer(1)) },
      },
    },
  },
  ...methods("partitionedQueue", "partitions.PartitionedQueue", {
    partitionOf: { key },
    queueOf: { key },
    ...operators,
    explain: { jobId, options: { options: { key: optional(key.legal as Legal) } } },
    cancel: {
      jobId,
      reason: cancelReason,
      options: { options: { key: optional(key.legal as Legal), remove: optional(boolean) } },
    },
    getJob: { id: { legal: text(1), right: "1" }, options: { options: { key: optional(key.legal as Legal) } } },
    removeJobScheduler: { id: { legal: text(1), right: "1" } },
    moveFrom: {
      from: { legal: integer(1, 1_024), right: 3 },
      options: { options: { signal: optional(signal), onProgress: optional(callback) } },
    },
  }),
  ...methods("partitionedWorker", "partitions.PartitionedWorker", {
    workerOf: { key },
    redlockOf: { key },
  }),
  ...methods("queue", "workers.ExclusiveQueue", {
    ...operators,
    explain: { jobId },
    cancel: { jobId, reason: cancelReason, options: { options: { remove: optional(boolean) } } },
  }),
  ...methods("worker", "workers.ExclusiveWorker", {
    lockJob: {
      job: { legal: never, right: { id: "1", moveToCompleted: nothing } },
      options: { options: { timeout } },
    },
  }),
};

/** Public functions that are not in the table, with the place where their arguments are checked. */
export const NOT_CALLED: Readonly<Record<string, string>> = {
  "core.systemClock": "a port that this package calls",
  "protocol.RedlockProtocol.call": "called by @x/semaphore with a name that it has checked",
  "protocol.RedlockProtocol.inside": "called by @x/workers with a lock that it has",
  "protocol.RedlockProtocol.hold": "called by @x/semaphore with what a script answered",
  "protocol.RedlockProtocol.ballot": "called by @x/semaphore with a key of its own and a clock that it has read",
  "protocol.RedlockProtocol.learn": "called by @x/semaphore with what a script answered",
  "protocol.RedlockProtocol.untilNodes": "called by @x/node-redlock with a function and a time of its own",
  "protocol.RedlockProtocol.takeBack": "called by @x/semaphore with a script of its own",
  "protocol.EmbeddedLocks.adopt": "called by @x/workers with what a script answered",
  "protocol.EmbeddedLocks.drop": "called by @x/workers with what a script answered",
  "protocol.EmbeddedLocks.note": "called by @x/workers with what a script answered",
  "core.new Lock": "made by Redlock only",
  "core.new Fenced": "made by fence only",
  "compat4.new Lock": "made by Redlock; of one made by hand the members are checked where it is used",
  "compat4.new LockError": "made by Redlock only",
  "compat4.Redlock.disposer": "for bluebird alone: refused here",
  "compat.new Lock": "made by Redlock; of one made by hand the members are checked where it is used",
  ...Object.fromEntries(
    ["add", "addBulk", "addFlow", "upsertJobScheduler", "getJobSchedulers", "getJobCounts", "getJobs", "count"]
      .concat(["pause", "resume", "isPaused", "drain", "obliterate", "waitUntilReady", "close"])
      .map((name) => [`partitions.PartitionedQueue.${name}`, "BullMQ's, as are its arguments"]),
  ),
  ...Object.fromEntries(
    ["run", "pause", "resume", "isPaused", "isRunning", "waitUntilReady", "close"].map((name) => [
      `partitions.PartitionedWorker.${name}`,
      "BullMQ's, as are its arguments",
    ]),
  ),
  ...Object.fromEntries(
    ["on", "once", "off", "emit"].map((name) => [`workers.ExclusiveQueue.${name}`, "an EventEmitter's"]),
  ),
  ...Object.fromEntries(
    ["PartitionedWorker", "PartitionedQueue"].flatMap((name) =>
      ["on", "once", "off"].map((method) => [`partitions.${name}.${method}`, "an EventEmitter's"]),
    ),
  ),
  "workers.ExclusiveWorker.getNextJob": "BullMQ's, as are its arguments",
  "workers.ExclusiveWorker.run": "BullMQ's",
  "workers.ExclusiveWorker.close": "BullMQ's",
  "workers.ExclusiveWorker.waitUntilReady": "BullMQ's",
  "workers.ExclusiveWorker.isRunning": "without arguments",
  "workers.ExclusiveWorker.delay": "called by BullMQ",
  "workers.ExclusiveWorker.on": "an EventEmitter's",
  "workers.ExclusiveWorker.once": "an EventEmitter's",
  "workers.ExclusiveWorker.off": "an EventEmitter's",
  "workers.ExclusiveWorker.emit": "an EventEmitter's",
  "workers.ExclusiveWorker.extendJobLocks": "called by BullMQ",
  "workers.ExclusiveWorker.nextJobFromJobData": "called by BullMQ",
  "workers.ExclusiveWorker.createJob": "called by BullMQ",
  "workers.ExclusiveWorker.callProcessJob": "called by BullMQ",
};

/** The exports, by the prefix of their entries. */
export const MODULES: Readonly<Record<string, object>> = {
  core,
  compat,
  compat4,
  glide,
  leader,
  nodeCron,
  scheduler,
  semaphore,
  effects,
  workers,
  partitions,
};

/** Objects that are not exported as a class, but whose methods users call. */
export const OBJECTS = (subjects: Subjects): Readonly<Record<string, object>> => ({
  "nodeCron.RunCoordinator": subjects.runCoordinator,
  "protocol.RedlockProtocol": subjects.protocol,
  "protocol.LockKeys": subjects.keys,
  "protocol.EmbeddedLocks": subjects.embedded,
  "semaphore.Access": subjects.access,
  "scheduler.Schedule": subjects.schedule,
});
