/** Ways to elect a leader behind one interface: the floor, what people write on lock libraries, and ours. */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { Redis } from "ioredis";
import { Mutex, RedlockMutex } from "redis-semaphore";
import { NodeRedlock5, type Redlock5Lock } from "../support/redlock5.ts";
import type { Ballot, Durations, Term } from "./ballot.ts";
import { openLeast } from "./least.ts";

export interface NodeAddress {
  readonly host: string;
  readonly port: number;
}

export type WayName = "SET NX PX" | "the least" | "redlock 5" | "redis-semaphore" | "ours" | "ours, rehearsed";

/** The floor, the peers, and ours. */
export const wayNames: readonly WayName[] = [
  "SET NX PX",
  "the least",
  "redlock 5",
  "redis-semaphore",
  "ours",
  "ours, rehearsed",
];

interface Way {
  /** For the report: what a candidate does. */
  readonly text: string;
  readonly open: (clients: readonly Redis[], durations: Durations) => Ballot;
}

export const ways: Record<WayName, Way> = {
  "SET NX PX": {
    text: "plain ioredis: a follower sends SET NX PX every retry period, the leader renews by a compare-and-pexpire script as often; of five nodes a majority decides. No deadline is watched, so the election is not safe: the row shows the cost of the commands alone",
    open: openPlain,
  },
  "the least": {
    text: "plain ioredis and three small scripts that keep this project's promises while nothing fails: candidates stand in line, are told of their turn, and lead by a quorum's grants, with terms, records and a deadline. What an election of that kind costs at least",
    open: openLeast,
  },
  "redlock 5": {
    text: "node-redlock 5: one `acquire` every retry period, then a hand-written loop that calls `extend` as often. Retries inside `acquire` are of no use: a lock that was waited for longer than its lease counts as expired, and `extend` rejects",
    open: openRedlock5,
  },
  "redis-semaphore": {
    text: "`Mutex` (of five nodes `RedlockMutex`) with endless retries and its automatic refresh every retry period",
    open: openSemaphore,
  },
  ours: {
    text: "`LeaderElection` with its own defaults beside the lease and the retry period; followers wait for a message or the end of the lease",
    open: openOurs,
  },
  "ours, rehearsed": {
    text: "the same after each process has led, and resigned from, an election of its own, so that what a term needs is compiled",
    open: openRehearsed,
  },
};

export function openBallot(way: WayName, nodes: readonly NodeAddress[], durations: Durations): Ballot {
  const clients = nodes.map(({ host, port }) => new Redis(port, host));
  for (const client of clients) client.on("error", () => undefined);
  return ways[way].open(clients, durations);
}

function openRehearsed(clients: readonly Redis[], durations: Durations): Ballot {
  const ballot = openOurs(clients, durations);
  let rehearsal: Promise<unknown> | undefined;
  return (name) => {
    const candidate = ballot(name);
    return {
      campaign: async () => {
        rehearsal ??= ballot(randomUUID())
          .campaign()
          .then((term) => term.resign());
        await rehearsal;
        return await candidate.campaign();
      },
    };
  };
}

function openOurs(clients: readonly Redis[], { leaseMs, retryPeriodMs }: Durations): Ballot {
  // The servers are new, and a measurement need not wait for them.
  const redlock = new Redlock(clients, { ttl: leaseMs, maxTtl: leaseMs, quarantine: false });
  return (name) => {
    const election = new LeaderElection(redlock, { name, leaseDuration: leaseMs, retryPeriod: retryPeriodMs });
    return {
      campaign: async () => {
        const term = await election.campaign();
        const lost = new Promise<void>((resolve) => {
          term.signal.addEventListener("abort", () => resolve(), { once: true });
        });
        // Whoever has resigned stands again when the measurement says so.
        return { lost, resign: () => term.resign({ cooldown: 0 }) };
      },
    };
  };
}

interface ScriptedRedis {
  extendLease(key: string, token: string, leaseMs: number): Promise<number>;
  releaseLease(key: string, token: string): Promise<number>;
}

const extendScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`;
const releaseScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`;

function openPlain(clients: readonly Redis[], { leaseMs, retryPeriodMs }: Durations): Ballot {
  for (const client of clients) {
    client.defineCommand("extendLease", { numberOfKeys: 1, lua: extendScript });
    client.defineCommand("releaseLease", { numberOfKeys: 1, lua: releaseScript });
  }
  const scripted = clients as unknown as readonly ScriptedRedis[];
  const isMajority = (votes: readonly boolean[]): boolean => votes.filter(Boolean).length > clients.length / 2;
  const release = (name: string, token: string): Promise<unknown> =>
    Promise.all(scripted.map((client) => client.releaseLease(name, token)));
  const extend = async (name: string, token: string): Promise<void> => {
    const answers = await Promise.all(scripted.map((client) => client.extendLease(name, token, leaseMs)));
    if (!isMajority(answers.map((answer) => answer === 1))) throw new Error("somebody else leads");
  };
  return (name) => ({
    campaign: async () => {
      for (;;) {
        const token = randomUUID();
        const answers = await Promise.all(clients.map((client) => client.set(name, token, "PX", leaseMs, "NX")));
        const votes = answers.map((answer) => answer === "OK");
        if (isMajority(votes)) {
          return keptAlive(retryPeriodMs, { extend: () => extend(name, token), release: () => release(name, token) });
        }
        if (votes.includes(true)) await release(name, token);
        await delay(retryPeriodMs);
      }
    },
  });
}

function openRedlock5(clients: readonly Redis[], { leaseMs, retryPeriodMs }: Durations): Ballot {
  const redlock = new NodeRedlock5(clients, { retryDelay: retryPeriodMs });
  const acquire = async (name: string): Promise<Redlock5Lock> => {
    for (;;) {
      try {
        return await redlock.acquire([name], leaseMs, { retryCount: 0 });
      } catch {
        await delay(retryPeriodMs);
      }
    }
  };
  return (name) => ({
    campaign: async () => {
      let lock = await acquire(name);
      return keptAlive(retryPeriodMs, {
        extend: async () => {
          lock = await lock.extend(leaseMs);
        },
        release: () => lock.release(),
      });
    },
  });
}

function openSemaphore(clients: readonly Redis[], { leaseMs, retryPeriodMs }: Durations): Ballot {
  const [client] = clients;
  return (name) => ({
    campaign: async () => {
      let lose: () => void = () => undefined;
      const lost = new Promise<void>((resolve) => {
        lose = resolve;
      });
      const settings = {
        lockTimeout: leaseMs,
        acquireTimeout: Number.POSITIVE_INFINITY,
        retryInterval: retryPeriodMs,
        refreshInterval: retryPeriodMs,
        onLockLost: lose,
      };
      const mutex =
        client !== undefined && clients.length === 1
          ? new Mutex(client, name, settings)
          : new RedlockMutex([...clients], name, settings);
      await mutex.acquire();
      return { lost, resign: () => mutex.release() };
    },
  });
}

/** The loop that goes with a lock which does not keep itself alive: until it is given back, or `extend` rejects. */
function keptAlive(
  periodMs: number,
  { extend, release }: { readonly extend: () => Promise<void>; readonly release: () => Promise<unknown> },
): Term {
  let isOver = false;
  const renewing = (async (): Promise<"lost" | "resigned"> => {
    while (!isOver) {
      await delay(periodMs);
      try {
        if (!isOver) await extend();
      } catch {
        return "lost";
      }
    }
    return "resigned";
  })();
  return {
    lost: new Promise((resolve) => {
      void renewing.then((end) => end === "lost" && resolve());
    }),
    resign: async () => {
      isOver = true;
      await release();
    },
  };
}
