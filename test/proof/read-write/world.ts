/**
 * A read-write lock as a small world: the real script on three simulated nodes, and the real rules by which a caller
 * counts the answers. Any message may be late or lost, and one node may lose its data.
 *
 * Each caller asks once for the whole lock (a writer) or for a part of it (a reader). A caller that is refused or gives
 * up takes its request back. A holder releases at any time. No lease expires.
 */
import { evaluate } from "../../../packages/testing/src/redis/scripts.ts";
import { Store } from "../../../packages/testing/src/redis/store.ts";
import { CORE_ENTRIES, loadSources, type SourcePatch } from "../../simulation/sources.ts";
import type { World } from "../explore.ts";

export interface PermitsCode {
  readonly script: typeof import("../../../packages/semaphore/src/permits/permits.lua.ts");
  readonly rules: typeof import("../../../packages/semaphore/src/permits/rules/answer.ts");
}

export async function loadPermits(patches: readonly SourcePatch[] = []): Promise<PermitsCode> {
  const contents = `export * as script from "./semaphore/src/permits/permits.lua.ts";
    export * as rules from "./semaphore/src/permits/rules/answer.ts";`;
  return await loadSources({ contents, names: CORE_ENTRIES }, patches);
}

export type Kind = "reader" | "writer";

export interface Bounds {
  readonly callers: readonly Kind[];
  /** How many nodes may restart without their data. Restarted nodes stay in quarantine. */
  readonly losses: number;
}

const NODES = ["a", "b", "c"] as const;
type NodeName = (typeof NODES)[number];
const CAPACITY = 10;
const KEYS = ["state", "holders", "waiters", "places", "node"];
const NOW_US = 100_000_000;
const [QUARANTINE_MS, LEASE_MS] = [60_000, 50_000];

interface Message {
  readonly caller: Caller;
  readonly node: NodeName;
  readonly operation: "acquire" | "release";
}

interface Caller {
  readonly name: string;
  readonly kind: Kind;
  readonly token: number;
  readonly answers: Map<NodeName, ReturnType<PermitsCode["rules"]["answerOf"]>>;
  state: "asks" | "holds" | "ended";
}

class SimulatedNode {
  incarnation = 0;
  readonly store: Store;

  constructor(name: NodeName) {
    const info = (): string => `run_id:${name}${this.incarnation}\r\n`;
    this.store = new Store({ nowUs: () => NOW_US, info, publish: () => 0 });
    // The node has been up for longer than the quarantine.
    this.store.call("HSET", ["node", "run_id", `${name}0`, "since", "0"]);
  }
}

export class ReadWriteWorld implements World {
  violation: string | undefined;
  readonly #code: PermitsCode;
  readonly #bounds: Bounds;
  readonly #nodes = new Map(NODES.map((name) => [name, new SimulatedNode(name)]));
  readonly #callers: readonly Caller[];
  #messages: Message[];
  #losses = 0;
  /** Greatest tokens of the grants so far. */
  readonly #granted = { reader: 0, writer: 0 };

  constructor(code: PermitsCode, bounds: Bounds) {
    this.#code = code;
    this.#bounds = bounds;
    this.#callers = bounds.callers.map((kind, at) => ({
      name: `${kind} ${at + 1}`,
      kind,
      token: NOW_US + at,
      answers: new Map(),
      state: "asks",
    }));
    this.#messages = this.#callers.flatMap((caller) =>
      NODES.map((node) => ({ caller, node, operation: "acquire" as const })),
    );
  }

  /** Nodes are interchangeable, so their texts are sorted. */
  get state(): string {
    const nodes = NODES.map((name) => {
      const { store, incarnation } = this.#nodes.get(name) as SimulatedNode;
      const own = this.#messages.filter(({ node }) => node === name);
      const messages = own.map(({ caller, operation }) => `${caller.name} ${operation}`);
      const answers = this.#callers.map(({ answers: all }) => all.get(name)?.vote.vote);
      return JSON.stringify([incarnation, store.dump(), messages, answers]).replaceAll(/[abc](?=\d)/g, "n");
    });
    const callers = this.#callers.map(({ state }) => state);
    return [...callers, ...nodes.toSorted(), this.#granted.reader, this.#granted.writer, this.#losses].join();
  }

  get actions(): readonly string[] {
    // Without a caller that asks, no caller can hold the lock any more.
    if (!this.#callers.some(({ state }) => state === "asks")) return [];
    const actions = this.#first.map(nameOf);
    for (const { name, state } of this.#callers) {
      if (state === "asks") actions.push(`${name}: gives up`);
      if (state === "holds") actions.push(`${name}: releases`);
    }
    if (this.#losses < this.#bounds.losses) actions.push(...NODES.map((name) => `${name}: loses its data`));
    return actions;
  }

  /** A connection delivers in order, so only the first message of a caller to a node can be next. */
  get #first(): readonly Message[] {
    const isFirst = ({ caller, node }: Message, at: number): boolean =>
      this.#messages.findIndex((each) => each.caller === caller && each.node === node) === at;
    return this.#messages.filter(isFirst);
  }

  act(action: string): Promise<void> {
    const [subject, verb] = action.split(": ");
    const message = this.#first.find((each) => nameOf(each) === action);
    if (message !== undefined) this.#deliver(message);
    else if (verb === "loses its data") this.#lose(subject as NodeName);
    else this.#takeBack(this.#callers.find(({ name }) => name === subject) as Caller);
    this.#messages = this.#messages.filter((each) => !this.#isVain(each));
    return Promise.resolve();
  }

  /** Reports whether a release changes nothing, because the node has refused or forgotten the caller. */
  #isVain({ caller, node, operation }: Message): boolean {
    if (
      operation === "acquire" ||
      this.#messages.some((each) => each.caller === caller && each.node === node && each.operation === "acquire")
    )
      return false;
    const { store } = this.#nodes.get(node) as SimulatedNode;
    return store.call("ZSCORE", ["holders", holderOf(caller)]) === null;
  }

  #deliver(message: Message): void {
    const { caller, node, operation } = message;
    this.#messages = this.#messages.filter((each) => each !== message);
    const { store } = this.#nodes.get(node) as SimulatedNode;
    const { permitsScript } = this.#code.script;
    const settings = [CAPACITY, QUARANTINE_MS, 0].map(String);
    const own = [holderOf(caller), String(LEASE_MS), "", "", String(caller.token), "1"];
    const value = evaluate(store, permitsScript.source, KEYS, [operation, ...settings, ...own]);
    if (operation === "release" || caller.state !== "asks") return;
    const { answerOf, outcomeOf } = this.#code.rules;
    caller.answers.set(node, answerOf({ ok: true, node, tookMs: 1, value }, "lock"));
    const outcome = outcomeOf([...caller.answers.values()], NODES.length);
    if (outcome === "won") this.#hold(caller);
    else if (outcome !== "open") this.#takeBack(caller);
  }

  #hold(caller: Caller): void {
    const { kind, name, token } = caller;
    const other = this.#callers.find((each) => each.state === "holds" && (kind === "writer" || each.kind === "writer"));
    const { reader, writer } = this.#granted;
    const least = kind === "writer" ? Math.max(reader, writer) : writer;
    caller.state = "holds";
    this.#granted[kind] = Math.max(this.#granted[kind], token);
    if (other !== undefined) this.violation = `${name} holds the lock together with ${other.name}`;
    else if (token < least) this.violation = `${name} has a token below that of an earlier holder`;
  }

  #takeBack(caller: Caller): void {
    caller.state = "ended";
    this.#messages.push(...NODES.map((node) => ({ caller, node, operation: "release" as const })));
  }

  #lose(name: NodeName): void {
    const node = this.#nodes.get(name) as SimulatedNode;
    node.store.flush();
    node.incarnation += 1;
    this.#losses += 1;
  }
}

function nameOf({ caller, node, operation }: Message): string {
  return `${caller.name}: ${operation} reaches ${node}`;
}

/** The name of a caller on the nodes, which begins with the number of its permits. */
function holderOf({ kind, name }: Caller): string {
  return `${kind === "writer" ? CAPACITY : 1}:${name}`;
}
