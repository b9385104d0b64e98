/**
 * The scheduler's register as a small world: the real `Register` and the real scripts on three simulated nodes. Any
 * message may be late or lost, and one node may lose its data.
 *
 * Each term wants the same tick. The term claims the tick in its first step, unless the register shows that an earlier
 * term has claimed the tick, and runs the tick when the step is confirmed. A second step stands for the end of the
 * tick.
 */
import type { NodeScript } from "@x/redlock-core";
import { quorumOf } from "../../../packages/redlock-core/src/rules/quorum.ts";
import { evaluate } from "../../../packages/testing/src/redis/scripts.ts";
import { Store } from "../../../packages/testing/src/redis/store.ts";
import { CORE_ENTRIES, loadSources, type SourcePatch } from "../../simulation/sources.ts";
import type { World } from "../explore.ts";

export interface RegisterCode {
  readonly register: typeof import("../../../packages/leader/src/scheduler/register.ts");
  readonly store: typeof import("../../../packages/leader/src/scheduler/register-store.ts");
}

export async function loadRegister(patches: readonly SourcePatch[] = []): Promise<RegisterCode> {
  const contents = `export * as register from "./leader/src/scheduler/register.ts";
    export * as store from "./leader/src/scheduler/register-store.ts";`;
  return await loadSources({ contents, names: CORE_ENTRIES }, patches);
}

type Register = InstanceType<RegisterCode["register"]["Register"]>;
type Ledger = ConstructorParameters<RegisterCode["store"]["RegisterStore"]>[0];

export interface Bounds {
  readonly terms: number;
  /** How many nodes may restart without their data. */
  readonly losses: number;
}

const NODES = ["a", "b", "c"] as const;
type NodeName = (typeof NODES)[number];
const ORDERS: readonly (readonly NodeName[])[] = NODES.flatMap((first) =>
  NODES.flatMap((second) =>
    NODES.filter((third) => new Set([first, second, third]).size === 3).map((third) => [first, second, third] as const),
  ),
);

interface Message {
  readonly term: number;
  readonly node: NodeName;
  readonly script: NodeScript;
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly request: Request;
}

interface Request {
  readonly isOpen: boolean;
  hear(node: NodeName, value: unknown): void;
}

class SimulatedNode {
  readonly name: NodeName;
  incarnation = 0;
  readonly store: Store;

  constructor(name: NodeName) {
    this.name = name;
    this.store = new Store({
      nowUs: () => 1_000_000,
      info: () => `run_id:${this.name}${this.incarnation}\r\n`,
      publish: () => 0,
    });
  }
}

/** One process that leads for one term, and writes the register as a scheduler does. */
class Leader {
  readonly term: number;
  readonly register: Register;
  /** The leader's progress so far, as a part of the state. */
  progress = "takes";
  request: Request | undefined;
  isCurrent = true;
  /** The lines that the leader adopted. Undefined before, and if nodes may have forgotten. */
  adopted: ReadonlyMap<string, string> | undefined;

  constructor(world: RegisterWorld, term: number) {
    this.term = term;
    const { register, store } = world.code;
    this.register = new register.Register({
      store: new store.RegisterStore(world.ledgerOf(this), "", 1_000),
      term: { term, isCurrent: () => this.isCurrent },
      onDoubt: () => (this.progress = "doubts"),
    });
    this.#lead(world).catch((error: unknown) => world.fail(String(error)));
  }

  async #lead(world: RegisterWorld): Promise<void> {
    const slice = { isOver: false } as Parameters<Register["take"]>[0];
    if (!(await this.#insist(() => this.register.take(slice)))) return this.#end();
    if (this.progress === "takes") this.adopted = new Map(this.register.fields);
    const isMine = !this.register.fields.has("tick");
    if (!(await this.#step(world, isMine ? ["tick", `of ${this.term}`] : ["seen", `by ${this.term}`]))) return;
    if (isMine && this.isCurrent) world.ran.push(this.term);
    await this.#step(world, ["done", `by ${this.term}`]);
    this.#end();
  }

  async #step(world: RegisterWorld, [field, line]: readonly [string, string]): Promise<boolean> {
    this.progress = `writes ${field}`;
    this.register.begin(new Map([[`${field} ${this.term}`.replace(/^tick .*/, "tick"), line]]));
    const written = new Map(this.register.fields);
    if (!(await this.#insist(() => this.register.confirm()))) {
      this.#end();
      return false;
    }
    world.confirmed.push({ term: this.term, fields: written });
    return true;
  }

  /** Repeats a call that rejects, as the scheduler does. */
  async #insist(call: () => Promise<boolean>): Promise<boolean> {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        if (!(error instanceof NoQuorum)) throw error;
        if (!this.isCurrent) return false;
      }
    }
  }

  #end(): void {
    this.progress = "ended";
  }
}

class NoQuorum extends Error {}

export class RegisterWorld implements World {
  readonly code: RegisterCode;
  readonly ran: number[] = [];
  readonly confirmed: { readonly term: number; readonly fields: ReadonlyMap<string, string> }[] = [];
  readonly #bounds: Bounds;
  readonly #nodes = new Map(NODES.map((name) => [name, new SimulatedNode(name)]));
  readonly #leaders: Leader[] = [];
  #messages: Message[] = [];
  #losses = 0;
  #failure: string | undefined;

  constructor(code: RegisterCode, bounds: Bounds) {
    this.code = code;
    this.#bounds = bounds;
    this.#leaders.push(new Leader(this, 1));
  }

  fail(error: string): void {
    this.#failure = error;
  }

  get violation(): string | undefined {
    if (this.#failure !== undefined) return this.#failure;
    if (this.ran.length > 1) return `the tick ran in the terms ${this.ran.join(" and ")}`;
    for (const { term, adopted } of this.#leaders) {
      for (const step of this.confirmed) {
        if (adopted === undefined || step.term >= term) continue;
        const lost = [...step.fields].find(([field, line]) => adopted.get(field) !== line);
        if (lost !== undefined) return `term ${term} does not know what term ${step.term} confirmed: ${lost[0]}`;
      }
    }
    return undefined;
  }

  /** Nodes are interchangeable, so the state is the least of the texts with the nodes in another order. */
  get state(): string {
    const leaders = JSON.stringify(
      this.#leaders.map(({ term, progress, request, isCurrent, register, adopted }) => [
        [term, progress, isCurrent, request?.isOpen, register.isDue, register.hasGap],
        [[...register.fields], [...(adopted ?? [])]],
      ]),
    );
    const nodes = new Map(
      [...this.#nodes.values()].map(({ name, store, incarnation }) => {
        const own = this.#messages.filter(({ node }) => node === name);
        const messages = own.map((each) => [each.term, each.request.isOpen, each.args]);
        return [name, JSON.stringify([incarnation, store.dump(), messages])];
      }),
    );
    const texts = ORDERS.map((order) =>
      order.map((name) =>
        nodes.get(name)?.replaceAll(/[abc](?=[0-9])/g, (each) => String(order.indexOf(each as NodeName))),
      ),
    );
    return [
      leaders,
      ...this.ran,
      this.confirmed.length,
      this.#losses,
      texts.map((each) => each.join()).toSorted()[0],
    ].join();
  }

  get actions(): readonly string[] {
    const actions = this.#first.map(nameOf);
    if (this.#leaders.length < this.#bounds.terms) actions.push("next term");
    if (this.#losses < this.#bounds.losses) actions.push(...NODES.map((name) => `lose ${name}`));
    return actions;
  }

  /** A connection delivers in order, so only the first message of a leader to a node can be next. */
  get #first(): readonly Message[] {
    const seen = new Set<string>();
    return this.#messages.filter(({ term, node }) => {
      const connection = `${term} ${node}`;
      return !seen.has(connection) && seen.add(connection);
    });
  }

  async act(action: string): Promise<void> {
    const [verb, name] = action.split(" ");
    if (verb === "next") {
      for (const leader of this.#leaders) leader.isCurrent = false;
      this.#leaders.push(new Leader(this, this.#leaders.length + 1));
    } else if (verb === "lose") {
      const node = this.#nodes.get(name as NodeName) as SimulatedNode;
      node.store.flush();
      node.incarnation += 1;
      this.#losses += 1;
    } else {
      const message = this.#first.find((each) => nameOf(each) === action) as Message;
      this.#messages = this.#messages.filter((each) => each !== message);
      const { store } = this.#nodes.get(message.node) as SimulatedNode;
      message.request.hear(message.node, evaluate(store, message.script.source, message.keys, message.args));
    }
    // Runs when no continuation is left.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    if (this.#losses === this.#bounds.losses) this.#messages = this.#messages.filter((each) => !this.#isVain(each));
  }

  /** Reports whether a node will refuse the message whenever it arrives, and no call waits for the answer. */
  #isVain({ term, node, request }: Message): boolean {
    const promised = this.#nodes.get(node)?.store.call("HGET", ["register", ":promised"]);
    return !request.isOpen && Number(promised ?? 0) > term;
  }

  /** Returns the ledger of a leader. Its requests are messages that the exploration delivers. */
  ledgerOf(leader: Leader): Ledger {
    const quorum = quorumOf(NODES.length);
    const ask: Ledger["ask"] = (_what, script, keys, args, parse, enough) =>
      new Promise((resolve) => {
        const answers: ReturnType<typeof parse>[] = [];
        let isOpen = true;
        const request: Request = {
          get isOpen() {
            return isOpen;
          },
          hear(node, value) {
            if (!isOpen) return;
            answers.push(parse(value, node));
            isOpen = answers.length < NODES.length && (answers.length < quorum || enough?.(answers) === false);
            if (!isOpen) resolve(answers);
          },
        };
        leader.request = request;
        this.#messages.push(...NODES.map((node) => ({ term: leader.term, node, script, keys, args, request })));
      });
    const unreachable = (): Error => new NoQuorum();
    const clock = { monotonicMs: () => 0, wallMs: () => 1_000 };
    const parts = { ask, unreachable, quorum, nodeCount: NODES.length, clock, key: (name: string) => name };
    return parts as unknown as Ledger;
  }
}

function nameOf({ term, node, script }: Message): string {
  return `term ${term} reaches ${node} (${script.name.replace("leader-", "")})`;
}
