/** Ways to elect a leader behind one interface: the floor, programs on lock libraries, and this project's package. */
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

/** The floor, the peers, and this project's package. */
export const wayNames: readonly WayName[] = [
  "SET NX PX",
  "the least",
  "redlock 5",
  "redis-semaphore",
  "ours",
  "ours, rehearsed",
];

interface Way {
  /** Description of a candidate, for the report. */
  readonly text: string;
  readonly open: (clients: readonly Redis[], durations: Durations) => Ballot;
}

export const ways: Record<WayName, Way> = {
  "SET NX PX": {
    text: "plain ioredis: a follower sends SET NX PX once in a retry period, and the leader renews as often with a compare-and-pexpire script; with five nodes a majority decides. The leader watches no deadline, so the election is not safe: the row shows the cost of the commands alone",
    open: openPlain,
  },
  "the least": {
    text: "plain ioredis and three small scripts that keep this project's promises while nothing fails: candidates wait in line, are notified at their turn, and lead with the grants of a quorum, with terms, records and a deadline. The row shows the least cost of such an election",
    open: openLeast,
  },
  "redlock 5": {
    text: "node-redlock 5: one `acquire` every retry period, then a hand-written loop that calls `extend` as often. Retries inside `acquire` are useless: after a wait that is longer than the lease, redlock 5 considers the lock expired, and `extend` rejects",
    open: openRedlock5,
  },
  "redis-semaphore": {
    text: "`Mutex` (with five nodes `RedlockMutex`) with endless retries, and an automatic refresh every retry period",
    open: openSemaphore,
  },
  ours: {
    text: "`LeaderElection` with its own defaults, except for the lease and the retry period; followers wait for a message or the end of the lease",
    open: openOurs,
  },
  "ours, rehearsed": {
    text: "the same after each process has led another election and resigned from it, so that the code of a term is compiled",
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
  // The servers are new, and a measurement need not wait for their quarantine.
  const redlock = new Redlock(clients, { ttl: leaseMs, maxTtl: leaseMs, quarantine: false });
  return (name) => {
    const election = new LeaderElection(redlock, { name, leaseDuration: leaseMs, retryPeriod: retryPeriodMs });
    return {
      campaign: async () => {
        const term = await election.campaign();
        const lost = new Promise<void>((resolve) => {
          term.signal.addEventListener("abort", () => resolve(), { once: true });
        });
        // The measurement says when a leader that has resigned campaigns again.
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

/** The loop for a lock that is not extended automatically. Ends when the lock is released, or when `extend` rejects. */
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
