/**
 * Redis nodes in memory, for `new Redlock(...)`. They run the Lua scripts of production, on the commands that locks and
 * elections use. The tests of the simulation compare the nodes with a real Redis. An unknown command throws an error
 * that names the command.
 */
import type { LockNode, NodeScript, NodeState } from "@x/redlock-core";
import { boolean, Check, integer, Schema, type ShapeOf } from "@x/redlock-core/kit";
import { RIGHT } from "./clock.ts";
import { DURATION, machineOf, PROCESS, STEP, type VirtualProcess } from "./process.ts";
import { Link } from "./world/link.ts";
import { LONGEST_LAG_MS, Server } from "./world/server.ts";

export interface MemoryNodesOptions {
  /** The process that the nodes are connected to: a `VirtualClock`, or another process of the same clock. */
  readonly clock: VirtualProcess;
  /** How long a request travels to a node, and a reply travels back, in ms. Default 0: requests need no `advance`. */
  readonly latency?: number | undefined;
}

const OPTIONS = new Schema({
  clock: PROCESS,
  latency: DURATION.default(0),
} satisfies ShapeOf<MemoryNodesOptions>);
const RESTART = new Schema({ empty: boolean.default(false) });
const LAG = integer({ min: 0, max: LONGEST_LAG_MS });
const COUNT = integer({ min: 1, max: 9, unit: "" });

const isNodes = (value: unknown): value is readonly MemoryNode[] =>
  Array.isArray(value) && value.length > 0 && value.every((each) => each instanceof MemoryNode);
const NODES: Check<readonly MemoryNode[]> = new Check({
  rule: "a number of nodes, or nodes of memoryNodes",
  faultOf: (value) => (isNodes(value) ? undefined : "type"),
});

/**
 * Creates the given number (1 to 9) of empty nodes, which have been up for an hour. If `nodes` are existing nodes,
 * returns the same nodes as seen by another process, over new connections.
 */
export function memoryNodes(nodes: number | readonly MemoryNode[], options: MemoryNodesOptions): readonly MemoryNode[] {
  const { clock, latency } = OPTIONS.resolve(options);
  const { world } = machineOf(clock);
  if (typeof nodes !== "number") {
    const given = NODES.of("nodes", nodes).map(serverOf);
    if (given.some((server) => server.world !== world)) {
      throw new TypeError("nodes must be nodes of the same VirtualClock as clock");
    }
    return given.map((server) => new MemoryNode(server, clock, latency));
  }
  return Array.from({ length: COUNT.of("nodes", nodes) }, (_, index) => {
    const server = new Server(world, { name: `node ${index + 1}`, drift: RIGHT, clockOffsetMs: 0 });
    server.beSettled();
    server.rememberWrites();
    return new MemoryNode(server, clock, latency);
  });
}

const servers = new WeakMap<MemoryNode, Server>();

function serverOf(node: MemoryNode): Server {
  const server = servers.get(node);
  if (server === undefined) throw new TypeError("not a node of memoryNodes");
  return server;
}

/** One node and the connection of one process to it. A fault of the node affects all processes. */
export class MemoryNode implements LockNode {
  readonly name: string;
  readonly #link: Link;

  /** Called by `memoryNodes`. */
  constructor(server: Server, process: VirtualProcess, latencyMs: number) {
    servers.set(this, server);
    this.name = server.name;
    const network = { delayMs: latencyMs, jitterMs: 0, slowChance: 0, slowMs: 0 };
    this.#link = new Link(machineOf(process), server, network);
  }

  get state(): NodeState {
    return this.#link.state;
  }

  get lastError(): Error | undefined {
    return this.#link.lastError;
  }

  /** Names of the keys on the node, sorted. */
  keys(): readonly string[] {
    return serverOf(this)
      .store.dump()
      .map(({ key }) => key);
  }

  /** Ends the node's process. The node stays down until `restart`. */
  crash(): void {
    serverOf(this).stop();
  }

  /**
   * Restarts the node, even if the node is up or frozen. The data survives, as with `appendfsync always`; with `empty`
   * the node starts without data. Processes connect again within a second of virtual time.
   */
  restart(options: { readonly empty?: boolean | undefined } = {}): void {
    const { empty } = RESTART.resolve(options);
    const server = serverOf(this);
    server.stop();
    server.thaw();
    server.start(empty ? "empty" : "durable");
  }

  /**
   * Promotes a replica at the node's address, as in a failover of a managed Redis. The node may be up, frozen or down.
   * The replica lags behind: the writes of the last `ms` (0 to 10000) are lost. Processes connect again soon.
   */
  failover(ms: number): void {
    serverOf(this).failOverLosing(LAG.of("ms", ms));
  }

  /** Stops the node's process for `ms`. The node answers afterwards, and its clock continues. */
  freeze(ms: number): void {
    serverOf(this).freeze(DURATION.of("ms", ms));
  }

  /** Blocks all traffic between this process and the node for `ms`. Messages sent in the meantime arrive afterwards. */
  partition(ms: number): void {
    this.#link.stall("both", DURATION.of("ms", ms));
  }

  /** Breaks the connection of this process to the node. The process connects again soon. */
  reset(): void {
    this.#link.reset(0);
  }

  /** Steps the node's clock by `ms`, forwards or backwards. */
  skew(ms: number): void {
    serverOf(this).stepClock(STEP.of("ms", ms));
  }

  /** FLUSHALL: the node loses all keys without a restart. */
  flush(): void {
    serverOf(this).flush();
  }

  eval(script: NodeScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return this.#link.eval(script, keys, args);
  }

  subscribe(channel: string, listener: (message: string) => void, onGap?: () => void): Promise<() => void> {
    return this.#link.subscribe(channel, listener, onGap);
  }

  onStateChange(listener: () => void): () => void {
    return this.#link.onStateChange(listener);
  }

  close(): Promise<void> {
    return this.#link.close();
  }
}
