/**
 * A chaos run: real Redis servers, real processes with locks, an election and a queue, a bad network between them, and
 * faults all the time. The run records everything. checker.ts reads the record afterwards and knows nothing of this
 * file.
 */
import { setTimeout as delay } from "node:timers/promises";
import {
  type Child,
  type FaultyProxy,
  machineMs,
  type RedisServer,
  spawnChild,
  startProxy,
  startRedis,
  startRedisNodes,
} from "@x/test-support";
import { Queue } from "bullmq";
import { SeededRandom } from "../../packages/testing/src/world.ts";
import type { FaultKind, History, HistoryLine, Told } from "./history.ts";
import { PAYMENTS, type ProcessArguments, REFUNDS } from "./processes/arguments.ts";

export interface ChaosOptions {
  readonly seed: string;
  /** Duration of the faults. */
  readonly faultyMs: number;
  readonly onProgress?: (text: string) => void;
}

const MAX_TTL_MS = 1_500;
const LOCK_NODES = 3;
const KEYS = 12;
/** Limit of jobs that are neither done nor failed. Above this limit the producer waits. */
const MAX_BACKLOG = 60;
const DRAIN_TIMEOUT_MS = 60_000;

const CAST = ["locker", "locker", "locker", "candidate", "candidate", "worker", "worker", "worker"] as const;

interface Member {
  readonly name: string;
  readonly role: (typeof CAST)[number];
  readonly proxies: readonly FaultyProxy[];
  readonly args: ProcessArguments;
  child: Child;
}

export async function runChaos(options: ChaosOptions): Promise<History> {
  await using run = new ChaosRun(options);
  return await run.run();
}

class ChaosRun implements AsyncDisposable {
  readonly #options: ChaosOptions;
  readonly #random: SeededRandom;
  readonly #history: HistoryLine[] = [];
  readonly #highest = new Map<string, number>();
  readonly #cleanUp: (() => Promise<unknown>)[] = [];
  readonly #mending = new Set<Promise<void>>();
  readonly #waitingForHolder: ((member: Member) => void)[] = [];
  #nodes: readonly RedisServer[] = [];
  #members: Member[] = [];
  readonly #down = new Set<RedisServer>();
  #isOver = false;
  #added = 0;
  #faults = 0;

  constructor(options: ChaosOptions) {
    this.#options = options;
    this.#random = new SeededRandom(options.seed);
  }

  async run(): Promise<History> {
    this.#nodes = await startRedisNodes(LOCK_NODES);
    for (const node of this.#nodes) this.#cleanUp.push(() => node.stop());
    const queueServer = await startRedis({ persistence: true });
    this.#cleanUp.push(() => queueServer.stop());
    const queues = [PAYMENTS, REFUNDS].map((name) => {
      const queue = new Queue(name, { connection: { path: queueServer.path, maxRetriesPerRequest: null } });
      queue.on("error", () => undefined);
      this.#cleanUp.push(() => queue.close());
      return queue;
    });
    for (const [index, role] of CAST.entries()) this.#members.push(await this.#cast(role, index, queueServer));

    const producing = this.#produce(queues);
    await this.#strike(queueServer);
    await Promise.all(this.#mending);
    this.#isOver = true;
    await this.#heal();
    await producing;
    await this.#drain(queues);
    return this.#history;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await Promise.allSettled(this.#members.map(({ child }) => child.kill()));
    for (const end of this.#cleanUp.toReversed()) await end().catch(() => undefined);
  }

  async #cast(role: Member["role"], index: number, queueServer: RedisServer): Promise<Member> {
    const targets = role === "worker" ? [...this.#nodes, queueServer] : this.#nodes;
    const proxies = await Promise.all(targets.map((target) => startProxy({ path: target.path })));
    for (const proxy of proxies) this.#cleanUp.push(() => proxy.stop());
    const queue = proxies[LOCK_NODES];
    const args: ProcessArguments = {
      lockNodes: proxies.slice(0, LOCK_NODES).map(({ url }) => url),
      queue: { host: "127.0.0.1", port: queue?.port ?? 0 },
      maxTtl: MAX_TTL_MS,
    };
    const name = `${role} ${index + 1}`;
    return { name, role, proxies, args, child: this.#spawn(name, role, args) };
  }

  #spawn(name: string, role: Member["role"], args: ProcessArguments): Child {
    return spawnChild(new URL(`./processes/${role}.ts`, import.meta.url), {
      name,
      args: [JSON.stringify(args)],
      onMessage: (message) => this.#told(name, message as Told),
    });
  }

  /** Resolves with the next member that reports a hold. */
  #nextHolder(): Promise<Member> {
    return new Promise((resolve) => this.#waitingForHolder.push(resolve));
  }

  #told(who: string, told: Told): void {
    if (told.type === "held" && told.state === "start") {
      const member = this.#members.find(({ name }) => name === who);
      if (member !== undefined) this.#waitingForHolder.shift()?.(member);
    }
    if (told.type !== "write") {
      this.#history.push({ kind: "told", who, told });
      return;
    }
    const { hold, resource, fencingToken } = told;
    const accepted = fencingToken >= (this.#highest.get(resource) ?? 0);
    if (accepted) this.#highest.set(resource, fencingToken);
    this.#history.push({ kind: "write", who, hold, resource, fencingToken, accepted, atMs: machineMs() });
  }

  async #produce(queues: readonly Queue[]): Promise<void> {
    const next = Array.from({ length: KEYS }, () => 0);
    while (!this.#isOver) {
      const key = Math.floor(this.#random.fraction() * KEYS);
      const seq = next[key] ?? 0;
      next[key] = seq + 1;
      await this.#add(queues[key % queues.length] as Queue, `account-${key}`, seq);
      this.#added += 1;
      if (this.#added % 20 === 0) await this.#untilBacklog(queues, MAX_BACKLOG).catch(() => undefined);
      await delay(this.#random.between(0, 40));
    }
  }

  /** The ID keeps a repeated add harmless: after a lost reply there are not two jobs. */
  async #add(queue: Queue, key: string, seq: number): Promise<void> {
    const job = { jobId: `${key}-${seq}`, attempts: 1_000, backoff: { type: "fixed", delay: 30 } };
    for (;;) {
      try {
        await queue.add("pay", { key, seq }, job);
        this.#history.push({ kind: "added", key, seq });
        return;
      } catch {
        await delay(50);
      }
    }
  }

  async #untilBacklog(queues: readonly Queue[], most: number): Promise<boolean> {
    const deadlineMs = machineMs() + DRAIN_TIMEOUT_MS;
    while (machineMs() < deadlineMs) {
      const counts = await Promise.all(
        queues.map((queue) => queue.getJobCounts("wait", "active", "delayed", "prioritized", "waiting-children")),
      );
      if (counts.flatMap(Object.values).reduce((sum, count) => sum + Number(count), 0) <= most) return true;
      await delay(100);
    }
    return false;
  }

  async #drain(queues: readonly Queue[]): Promise<void> {
    await this.#untilBacklog(queues, 0);
    for (const job of (await Promise.all(queues.map((queue) => queue.getCompleted(0, -1)))).flat()) {
      const { key, seq } = job.data as { key: string; seq: number };
      this.#history.push({ kind: "completed", key, seq });
    }
  }

  async #strike(queueServer: RedisServer): Promise<void> {
    const endMs = machineMs() + this.#options.faultyMs;
    while (machineMs() < endMs) {
      await delay(this.#random.between(100, 700));
      const leftMs = Math.max(0, endMs - machineMs());
      this.#options.onProgress?.(
        `${(leftMs / 1_000).toFixed(0)} s left, ${this.#added} jobs, ${this.#history.length} entries`,
      );
      this.#mend(this.#fault(queueServer));
    }
  }

  #mend(mending: Promise<void>): void {
    const settled = mending
      .catch((error: unknown) => {
        this.#history.push({ kind: "told", who: "chaos", told: { type: "trouble", message: String(error) } });
      })
      .finally(() => this.#mending.delete(settled));
    this.#mending.add(settled);
  }

  /** Causes one fault, and ends it. */
  async #fault(queueServer: RedisServer): Promise<void> {
    const random = this.#random;
    const node = random.pick(this.#nodes);
    const nodeName = `node ${this.#nodes.indexOf(node) + 1}`;
    const member = random.pick(this.#members);
    const proxy = random.pick(member.proxies);
    const proxyName = `${member.name} – ${proxy === member.proxies[LOCK_NODES] ? "queue" : `node ${member.proxies.indexOf(proxy) + 1}`}`;
    const ms = random.between(50, 1.6 * MAX_TTL_MS);
    let end: () => void;
    switch (random.integer(0, 9)) {
      case 0:
        await this.#killServer(node, nodeName, `SIGKILL ${nodeName}, back without its data`);
        return;
      case 1:
        end = this.#tell(nodeName, "frozen", `SIGSTOP ${nodeName} for ${ms.toFixed(0)} ms`);
        node.freeze();
        await delay(ms);
        node.thaw();
        break;
      case 2:
        end = this.#tell(member.name, "network", `${proxyName}: nothing gets through for ${ms.toFixed(0)} ms`);
        for (const direction of random.pick([["up"], ["down"], ["up", "down"]] as const)) proxy.blackhole(direction);
        await delay(ms);
        proxy.heal();
        proxy.drop();
        break;
      case 3:
        end = this.#tell(
          member.name,
          "network",
          `${proxyName}: ${(ms / 10).toFixed(0)} ms late for ${ms.toFixed(0)} ms`,
        );
        proxy.delay(ms / 10);
        await delay(ms);
        proxy.heal();
        break;
      case 4:
        end = this.#tell(member.name, "network", `${proxyName}: connections are reset`);
        proxy.drop();
        break;
      case 5:
        end = this.#tell(member.name, "network", `${proxyName}: half-closed`);
        proxy.halfClose();
        break;
      case 6: {
        const holder = await this.#nextHolder();
        const forMs = (MAX_TTL_MS + ms).toFixed(0);
        end = this.#tell(
          holder.name,
          "frozen",
          `SIGSTOP ${holder.name}, who has just got hold of something, for ${forMs} ms`,
        );
        holder.child.freeze();
        await delay(MAX_TTL_MS + ms);
        holder.child.thaw();
        break;
      }
      case 7:
        end = this.#tell(member.name, "frozen", `SIGSTOP ${member.name} for ${(1.5 * ms).toFixed(0)} ms`);
        member.child.freeze();
        await delay(1.5 * ms);
        member.child.thaw();
        break;
      case 8: {
        end = this.#tell(member.name, "killed", `SIGKILL ${member.name}`);
        const { child } = member;
        await child.kill();
        // A member that is killed twice is started once.
        if (member.child === child) member.child = this.#spawn(member.name, member.role, member.args);
        break;
      }
      default:
        if (random.chance(0.7)) return;
        await this.#killServer(queueServer, "queue", "SIGKILL queue, back with its data");
        return;
    }
    end();
  }

  /** A server that is starting is left alone, because a second kill would keep it from starting. */
  async #killServer(server: RedisServer, name: string, fault: string): Promise<void> {
    const downMs = this.#random.between(0, 300);
    if (this.#down.has(server)) return;
    this.#down.add(server);
    const end = this.#tell(name, "killed", fault);
    await server.kill();
    await delay(downMs);
    await server.restart();
    end();
    this.#down.delete(server);
  }

  async #heal(): Promise<void> {
    this.#tell(undefined, "none", "no faults from here on");
    for (const node of this.#nodes) {
      node.thaw();
      await node.start();
    }
    for (const { proxies, child } of this.#members) {
      child.thaw();
      for (const proxy of proxies) proxy.heal();
    }
  }

  /** Records a fault. Returns a function that records the end of the fault. */
  #tell(on: string | undefined, what: FaultKind, text: string): () => void {
    const id = (this.#faults += 1);
    this.#history.push({ kind: "fault", id, on, what, text, atMs: machineMs() });
    return () => void this.#history.push({ kind: "mended", id, atMs: machineMs() });
  }
}
