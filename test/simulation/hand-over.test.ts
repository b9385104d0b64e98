/** The next waiter receives a released lock long before a reservation ends, even if messages are lost or late. */
import type { Lock } from "@x/redlock-core";
import { beforeAll, expect, it } from "vitest";
import { Drift, Link, Machine, Server, World } from "../../packages/testing/src/world.ts";
import { type Engine, loadEngine } from "./engine.ts";

const RESOURCE = "orders";
const TTL_MS = 15_000;
const EXACT = new Drift(0, 1_000, 0);
/**
 * A round trip, the wait for the messages of the other nodes, and an attempt. A reservation lasts ten times as long.
 */
const MOST_MS = 100;

let engine: Engine;

beforeAll(async () => {
  engine = await loadEngine();
});

interface Loss {
  readonly nodeCount: number;
  /** Nodes whose message to the first waiter is lost. */
  readonly lost: number;
  /** Nodes that receive the release late. */
  readonly late: number;
}

/** Returns the time from the release to the next grant, and the waiter that received the lock. */
async function handOver(seed: string, { nodeCount, lost, late }: Loss): Promise<readonly [tookMs: number, to: number]> {
  const world = new World(seed, { record: false });
  const { random } = world;
  const names = Array.from({ length: nodeCount }, (_, index) => `node ${index + 1}`);
  const servers = names.map(
    (name) => new Server(world, { name, drift: EXACT, clockOffsetMs: random.between(-20, 20) }),
  );
  for (const server of servers) server.beSettled();
  const order = names.toSorted(() => random.fraction() - 0.5);
  const isLost = (to: number, node: string): boolean => to === 1 && order.indexOf(node) < lost;
  const machines = [0, 1, 2, 3].map((to) => {
    const name = `client ${to}`;
    const machine = new Machine(world, { name, drift: EXACT, wallOffsetMs: 0, stallChance: 0, longestStallMs: 0 });
    const network = { delayMs: 0.2, jitterMs: 1, slowChance: 0, slowMs: 0 };
    const links = servers.map((server) => new Link(machine, server, network));
    for (const link of links) {
      const subscribe = link.subscribe.bind(link);
      link.subscribe = (channel, listener, onGap) =>
        subscribe(channel, (message) => isLost(to, link.name) || listener(message), onGap);
    }
    const redlock = new engine.core.Redlock(links, {
      ttl: TTL_MS,
      maxTtl: TTL_MS,
      clock: machine.clock,
      random: { token: () => random.hex(40), fraction: () => random.fraction() },
    });
    return { machine, links, redlock };
  });
  const granted: { readonly lock: Lock; readonly atMs: number; readonly to: number }[] = [];
  for (const [to, { machine, redlock }] of machines.entries()) {
    await world.run(world.nowMs + 100, () => undefined);
    machine.deliver("timer", () => {
      void redlock
        .acquire(RESOURCE, { timeout: TTL_MS })
        .then((lock) => granted.push({ lock, atMs: world.nowMs, to }))
        .catch(() => undefined);
    });
  }
  await world.run(world.nowMs + 100, () => undefined);
  const releasedMs = world.nowMs;
  const [holder] = machines;
  for (const link of holder?.links ?? []) if (order.indexOf(link.name) >= nodeCount - late) link.stall("up", 3_000);
  holder?.machine.deliver("timer", () => void granted[0]?.lock.release());
  await world.run(releasedMs + 5_000, () => undefined);
  const next = granted[1];
  return [(next?.atMs ?? Number.POSITIVE_INFINITY) - releasedMs, next?.to ?? -1];
}

it.each<Loss>([
  { nodeCount: 3, lost: 2, late: 0 },
  { nodeCount: 3, lost: 1, late: 1 },
  { nodeCount: 4, lost: 3, late: 0 },
  { nodeCount: 4, lost: 2, late: 1 },
  { nodeCount: 5, lost: 4, late: 0 },
  { nodeCount: 5, lost: 2, late: 2 },
])(
  "a released lock goes to the first waiter immediately: $nodeCount nodes, $lost messages lost, $late releases late",
  async (loss) => {
    for (let run = 0; run < 10; run += 1) {
      const [tookMs, to] = await handOver(`hand-over/${run}`, loss);
      expect(to).toBe(1);
      expect(tookMs).toBeLessThan(MOST_MS);
    }
  },
);
