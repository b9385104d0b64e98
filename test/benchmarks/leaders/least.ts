/**
 * The smallest program that elects like `LeaderElection`, with plain ioredis and its own scripts: the least cost of
 * each step of an election.
 *
 * The same: candidates lead in the order in which they began to wait, and are notified at their turn; a quorum decides;
 * terms increase; the leader is stored with the lock, and how the term ended with its end; a leader knows its deadline;
 * dead candidates are passed over. Left out: everything that a candidate needs if nodes, clients or clocks fail,
 * events, options and cancellation.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Redis } from "ioredis";
import type { Ballot, Durations, Term } from "./ballot.ts";

const handOver = /* lua */ `
local call = redis.call
local function handOver()
  while true do
    local head = call('ZPOPMIN', KEYS[2])[1]
    if not head then return end
    if call('PUBLISH', string.match(head, '^[^#]*'), head) > 0 then
      call('SET', KEYS[1], 'reserved:' .. head, 'PX', 1000)
      return
    end
  end
end
`;

/**
 * KEYS lock, waiters, record; ARGV token, term, lease, member, order, record. Replies {1}, {0, pttl} or {2, stored
 * term}
 */
const acquireScript = /* lua */ `${handOver}
local value = call('GET', KEYS[1])
if not value and (call('ZRANGE', KEYS[2], 0, 0)[1] or ARGV[4]) ~= ARGV[4] then
  call('ZADD', KEYS[2], ARGV[5], ARGV[4])
  handOver()
  value = call('GET', KEYS[1])
end
if value and value ~= 'reserved:' .. ARGV[4] then
  call('ZADD', KEYS[2], ARGV[5], ARGV[4])
  return {0, call('PTTL', KEYS[1])}
end
local stored = call('HGET', KEYS[3], 'term')
if stored and stored >= ARGV[2] then return {2, stored} end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
call('HSET', KEYS[3], 'term', ARGV[2], 'token', ARGV[1], 'record', ARGV[6], 'ended', '0')
call('ZREM', KEYS[2], ARGV[4])
return {1}
`;

/** KEYS lock; ARGV token, lease */
const extendScript = /* lua */ `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
`;

/** KEYS lock, waiters, record; ARGV token, 1 after a term */
const releaseScript = /* lua */ `${handOver}
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '1' then call('HSET', KEYS[3], 'ended', '1') end
call('DEL', KEYS[1])
handOver()
return 1
`;

interface Scripted {
  leastAcquire(...args: readonly (string | number)[]): Promise<readonly [0 | 1 | 2, (number | string)?]>;
  leastExtend(...args: readonly (string | number)[]): Promise<number>;
  leastRelease(...args: readonly (string | number)[]): Promise<number>;
}

interface Refused {
  /** Milliseconds until a quorum may be free. */
  readonly freeInMs: number;
  readonly leastTerm: number;
}

export function openLeast(clients: readonly Redis[], { leaseMs, retryPeriodMs }: Durations): Ballot {
  const quorum = Math.floor(clients.length / 2) + 1;
  const channel = randomUUID();
  const told = new Map<string, (node: number) => void>();
  for (const client of clients) {
    client.defineCommand("leastAcquire", { numberOfKeys: 3, lua: acquireScript });
    client.defineCommand("leastExtend", { numberOfKeys: 1, lua: extendScript });
    client.defineCommand("leastRelease", { numberOfKeys: 3, lua: releaseScript });
  }
  const nodes = clients as unknown as readonly Scripted[];
  const listening = Promise.all(
    clients.map(async (client, node) => {
      const subscriber = client.duplicate();
      subscriber.on("error", () => undefined);
      subscriber.on("message", (_channel: string, member: string) => told.get(member)?.(node));
      await subscriber.subscribe(channel);
    }),
  );

  /** Resolves when a quorum has answered `isYes`, or when no quorum is possible any more. */
  const poll = <Answer>(asked: readonly Promise<Answer>[], isYes: (answer: Answer) => boolean): Promise<boolean> =>
    new Promise((resolve) => {
      let [yes, no] = [0, 0];
      const count = (isGranted: boolean): void => {
        if (isGranted) yes += 1;
        else no += 1;
        if (yes === quorum) resolve(true);
        else if (no === clients.length - quorum + 1) resolve(false);
      };
      for (const each of asked)
        each.then(
          (answer) => count(isYes(answer)),
          () => count(false),
        );
    });

  const attempt = async (
    name: string,
    facts: { readonly token: string; readonly term: number; readonly member: string; readonly order: number },
  ): Promise<Refused | undefined> => {
    const { token, term, member, order } = facts;
    const record = JSON.stringify({ term, id: channel, sinceMs: Date.now() });
    const answers: (readonly [number, (number | string)?])[] = [];
    const asked = nodes.map(async (node) => {
      const answer = await node.leastAcquire(
        name,
        `${name}:q`,
        `${name}:r`,
        token,
        term,
        leaseMs,
        member,
        order,
        record,
      );
      answers.push(answer);
      return answer;
    });
    if (await poll(asked, ([kind]) => kind === 1)) return undefined;
    if (answers.some(([kind]) => kind === 1))
      await Promise.allSettled(nodes.map((node) => release(node, name, token, 0)));
    const pttls = answers.map(([kind, pttl]) => (kind === 0 ? Number(pttl) : 0)).toSorted((a, b) => a - b);
    const terms = answers.map(([kind, stored]) => (kind === 2 ? Number(stored) : 0));
    return { freeInMs: pttls[Math.min(quorum, pttls.length) - 1] ?? 1_000, leastTerm: Math.max(...terms) };
  };

  const release = (node: Scripted, name: string, token: string, isEnd: 0 | 1): Promise<number> =>
    node.leastRelease(name, `${name}:q`, `${name}:r`, token, isEnd);

  return (name) => ({
    campaign: async () => {
      await listening;
      const member = `${channel}#${name}`;
      const order = Date.now();
      for (let leastTerm = 0; ; ) {
        const turns = new Set<number>();
        let wake: () => void = () => undefined;
        told.set(member, (node) => {
          turns.add(node);
          if (turns.size >= quorum) wake();
        });
        const token = randomBytes(20).toString("hex");
        const askedMs = performance.now();
        const term = Math.max(leastTerm + 1, Date.now() * 1_000);
        const refused = await attempt(name, { token, term, member, order });
        if (refused === undefined) return lead(name, token, askedMs);
        leastTerm = refused.leastTerm;
        if (leastTerm === 0 && turns.size < quorum) {
          const over = new AbortController();
          const turn = new Promise<void>((resolve) => {
            wake = resolve;
          });
          const due = delay(refused.freeInMs, undefined, { signal: over.signal }).catch(() => undefined);
          await Promise.race([turn, due]);
          over.abort();
        }
      }
    },
  });

  function lead(name: string, token: string, askedMs: number): Term {
    let deadlineMs = askedMs + (leaseMs * 2) / 3;
    let lose: () => void = () => undefined;
    const lost = new Promise<void>((resolve) => {
      lose = resolve;
    });
    const timer = setInterval(() => {
      const extendedMs = performance.now();
      if (extendedMs > deadlineMs) {
        clearInterval(timer);
        lose();
        return;
      }
      const asked = nodes.map((node) => node.leastExtend(name, token, leaseMs));
      void poll(asked, (answer) => answer === 1).then((isExtended) => {
        if (isExtended) deadlineMs = extendedMs + (leaseMs * 2) / 3;
      });
    }, retryPeriodMs);
    return {
      lost,
      resign: () => {
        clearInterval(timer);
        return Promise.all(nodes.map((node) => release(node, name, token, 1)));
      },
    };
  }
}
