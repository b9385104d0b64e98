/**
 * Compares the model with the code. Schedules of the simulation run the real TypeScript and Lua. Each operation that a
 * node executes must be a step of the model: allowed in the state before, with the key, the expiry and the register of
 * the state after. A vote must be a vote that the model counts. A grant needs a quorum of votes, and so does an end
 * that moves.
 */

import { quarantineMs } from "../../packages/redlock-core/src/rules/quarantine.ts";
import { quorumOf } from "../../packages/redlock-core/src/rules/quorum.ts";
import { validityMs } from "../../packages/redlock-core/src/rules/validity.ts";
import { type Hold, LockChecker, Server, validityEnd, World } from "../../packages/testing/src/world.ts";
import { DIRECTED, runDirected } from "../simulation/directed.ts";
import { type Engine, loadEngine } from "../simulation/engine.ts";
import { MUTATIONS } from "../simulation/mutations.ts";
import { runSchedule } from "../simulation/schedule.ts";
import { drawSetting } from "../simulation/setting.ts";
import type { SourcePatch } from "../simulation/sources.ts";
import { changesFrom, groupedOf, namesOf } from "./machine.ts";
import { BOOT_STEP_MS, KEY, modelOf, STATUS } from "./model.ts";
import { readRules } from "./rules.ts";
import { evaluate, parse, type Tree, type Value } from "./terms.ts";
import { NOTICED } from "./traced.ts";

export interface TraceResult {
  /** How often each step of the model was seen. */
  readonly steps: ReadonlyMap<string, number>;
  /** Operations that the model does not allow, with the first example of each. */
  readonly problems: ReadonlyMap<string, string>;
}

export interface TraceOptions {
  /** Schedules `seed/1`, `seed/2`, …, or the name of a directed schedule. */
  readonly seed: string;
  readonly runs: number;
  readonly nodeCount: number;
  readonly patches?: readonly SourcePatch[];
  /** Whether the first problem ends the search. */
  readonly stopsEarly?: boolean;
}

interface Operation {
  readonly kind: "acquire" | "extend" | "repair" | "release" | "other";
  readonly token: string;
  readonly ballot: number;
  readonly ttl: number;
  /** The index of its first lock key, and the number of its lock keys. */
  readonly first: number;
  readonly count: number;
  readonly registers: readonly string[];
}

interface KeyState {
  readonly text: string | undefined;
  readonly expiresMs: number;
}

interface Formulas {
  readonly when: readonly Tree[];
  readonly next: readonly (readonly [name: string, term: Tree])[];
}

const MODEL = modelOf({ rules: readRules(), nodes: "any", drift: 0.01 });

/** Returns the steps of attempt A on the node. A is the attempt that sends the request. */
function formulasOf(name: string): Formulas {
  const step = MODEL.steps.find((each) => each.name === name);
  if (step === undefined) throw new Error(`no step ${name}`);
  const state = groupedOf(MODEL.shape, namesOf(MODEL));
  const draws = Object.fromEntries(Object.keys(step.draws).map((draw) => [draw, `draw.${draw}`]));
  const next = [...changesFrom(step.next(state, draws))].map(([of, term]) => [of, parse(term)] as const);
  return { when: step.when(state, draws).map(parse), next };
}

const STEPS = new Map(
  ["n1 grants A", "n1 extends A", "n1 repairs A", "n1 releases A", "n1 releases another"].map((name) => [
    name,
    formulasOf(name),
  ]),
);

/** Traces schedules. Only one trace runs at a time, because it listens to every server of the simulation. */
export async function trace({
  seed,
  runs,
  nodeCount,
  patches = [],
  stopsEarly = false,
}: TraceOptions): Promise<TraceResult> {
  const engine = await loadEngine(patches);
  const tracer = new Tracer(quorumOf(nodeCount));
  const stop = tracer.listen();
  try {
    if (DIRECTED.includes(seed)) {
      tracer.begin({ maxTtl: 1_000, driftFactor: 0.01 });
      await runDirected(engine, seed);
      return tracer;
    }
    for (let run = 1; run <= runs && !(stopsEarly && tracer.problems.size > 0); run += 1) {
      await traceOne(engine, tracer, `${seed}/${run}`, nodeCount);
    }
    return tracer;
  } finally {
    stop();
  }
}

async function traceOne(engine: Engine, tracer: Tracer, seed: string, nodeCount: number): Promise<void> {
  tracer.begin(drawSetting(new World(seed, { record: false }).random, { nodeCount }));
  await runSchedule(engine, seed, { nodeCount });
}

/** Number of schedules in which a mutation is noticed. */
const NOTICING_RUNS = 30;

/** Reports whether the trace notices a mutation of the simulation. */
export async function isNoticed(protection: string): Promise<boolean> {
  const mutation = MUTATIONS.find((each) => each.protection === protection);
  if (mutation === undefined) throw new Error(`no mutation ${protection}`);
  const seed = NOTICED[protection] ?? "trace";
  const { problems } = await trace({
    ...{ seed, runs: NOTICING_RUNS, nodeCount: 3, patches: mutation.patches, stopsEarly: true },
  });
  return problems.size > 0;
}

class Tracer implements TraceResult {
  readonly steps = new Map<string, number>();
  readonly problems = new Map<string, string>();
  readonly #quorum: number;
  #maxTtl = 0;
  #drift = 0;
  /** When each server may vote at the earliest, by its own clock. */
  readonly #silentUntilMs = new Map<Server, number>();
  readonly #votes = new Map<string, { readonly nodes: Set<string>; readonly ttl: number }>();
  readonly #extensions = new Map<string, Set<string>>();
  readonly #held = new Set<{ readonly hold: Hold; endMs: number }>();

  constructor(quorum: number) {
    this.#quorum = quorum;
  }

  begin({ maxTtl, driftFactor }: { readonly maxTtl: number; readonly driftFactor: number }): void {
    this.#maxTtl = maxTtl;
    this.#drift = driftFactor;
    for (const each of [this.#silentUntilMs, this.#votes, this.#extensions, this.#held]) each.clear();
  }

  /** Listens to servers and checkers. Returns a function that stops listening. */
  listen(): () => void {
    const onLoss = (name: "flush" | "failOver" | "failOverLosing"): (() => void) =>
      wrap(Server.prototype, name, (server, _, own) => {
        own();
        this.#forgot(server);
      });
    const stops = [
      wrap(Server.prototype, "execute", (server, [, keys = [], args = []], own) => {
        const isBatch = keys[0] === "{x}:node:lines" && /^[NR]/.test(args[0] ?? "");
        return isBatch ? this.#execute(server, keys, args, own) : own();
      }),
      wrap(Server.prototype, "start", (server, [amnesia], own) => {
        const isLoss = !server.isUp && String(amnesia) !== "durable";
        own();
        if (isLoss) this.#forgot(server);
      }),
      ...(["flush", "failOver", "failOverLosing"] as const).map(onLoss),
      wrap(LockChecker.prototype, "granted", (_self, _given, own) => {
        const hold = own();
        this.#granted(hold as Hold);
        return hold;
      }),
      wrap(LockChecker.prototype, "check", (_self, _given, own) => {
        this.#check();
        own();
      }),
    ];
    return () => {
      for (const stop of stops) stop();
    };
  }

  #note(problem: string, example: unknown): void {
    if (!this.problems.has(problem)) this.problems.set(problem, JSON.stringify(example).slice(0, 500));
  }

  #count(step: string): void {
    this.steps.set(step, (this.steps.get(step) ?? 0) + 1);
  }

  #forgot(server: Server): void {
    const wholeMs = quarantineMs(this.#maxTtl, this.#drift) - Number(BOOT_STEP_MS);
    this.#silentUntilMs.set(server, clockOf(server) + wholeMs);
    this.#count("n1 loses its data");
  }

  /** Makes a step of the model. Returns the values after it, or undefined if the model forbids the step. */
  #step(name: string, values: ReadonlyMap<string, Value>): Map<string, Value> | undefined {
    const { when, next } = STEPS.get(name) as Formulas;
    this.#count(name);
    if (!when.every((each) => evaluate(each, values) === true)) {
      this.#note(`the model forbids: ${name}`, [...values]);
      return undefined;
    }
    return new Map([...values, ...next.map(([of, term]) => [of, evaluate(term, values)] as const)]);
  }

  #execute<Reply>(server: Server, keys: readonly string[], args: readonly string[], execute: () => Reply): Reply {
    const operations = readBatch(args);
    const locksOf = ({ first, count }: Operation): readonly string[] => keys.slice(first, first + count);
    const state = new Map(operations.flatMap(locksOf).map((lock) => [lock, keyOf(server, lock)]));
    const registers = new Map(
      operations.flatMap((each) => each.registers).map((name) => [name, registerOf(server, name)]),
    );
    const clockMs = clockOf(server);
    const reply = execute();
    const [, quarantineLeftMs, ...told] = Array.isArray(reply) ? reply : [0, 0, ...operations.map(() => 1)];
    for (const [index, operation] of operations.entries()) {
      for (const [at, lock] of locksOf(operation).entries()) {
        const before = state.get(lock) ?? { text: undefined, expiresMs: 0 };
        const register = operation.registers[at];
        const values = this.#valuesOf(server, operation, before, registers.get(register ?? "") ?? 0, clockMs);
        const after = this.#operate(server, operation, lock, {
          values,
          before,
          answer: told[index],
          mayVote: quarantineLeftMs === 0,
        });
        if (after === undefined) continue;
        const key = after.get("nodes.n1.key");
        const text = key === Number(KEY.A) ? operation.token : key === Number(KEY.nobody) ? undefined : before.text;
        state.set(lock, { text, expiresMs: clockMs + Number(after.get("nodes.n1.life")) });
        if (register !== undefined) registers.set(register, Number(after.get("nodes.n1.register")));
      }
    }
    for (const [lock, predicted] of state) this.#compare(lock, predicted, keyOf(server, lock), args);
    for (const [name, value] of registers) {
      if (registerOf(server, name) !== value) this.#note("another register than the model's", { name, value, args });
    }
    return reply;
  }

  #valuesOf(
    server: Server,
    { kind, token, ballot, ttl }: Operation,
    { text, expiresMs }: KeyState,
    register: number,
    clockMs: number,
  ): ReadonlyMap<string, Value> {
    const status = kind === "acquire" ? STATUS.asking : kind === "release" ? STATUS.over : STATUS.held;
    const key = text === undefined ? KEY.nobody : text === token ? KEY.A : KEY.another;
    const silence = (this.#silentUntilMs.get(server) ?? Number.NEGATIVE_INFINITY) - clockMs;
    return new Map<string, Value>([
      ["A.status", Number(status)],
      ["A.isExtending", true],
      ["A.hasExtended", true],
      ["A.ttl", ttl],
      ["A.newTtl", ttl],
      ["A.ballot", ballot],
      ["draw.life", ttl],
      ["nodes.n1.key", Number(key)],
      ["nodes.n1.life", expiresMs - clockMs],
      ["nodes.n1.silence", silence],
      ["nodes.n1.register", register],
      ["nodes.n1.firstVote", 0],
      ["nodes.n1.A.voted", false],
      ["nodes.n1.A.extends", false],
    ]);
  }

  /**
   * Makes the steps of one operation for one lock. Returns the values after the steps, or undefined if the operation
   * does nothing.
   */
  #operate(
    server: Server,
    { kind, token, ttl }: Operation,
    lock: string,
    facts: {
      readonly values: ReadonlyMap<string, Value>;
      readonly before: KeyState;
      readonly answer: unknown;
      readonly mayVote: boolean;
    },
  ): ReadonlyMap<string, Value> | undefined {
    const { values, before, answer, mayVote } = facts;
    const isMine = values.get("nodes.n1.key") === Number(KEY.A);
    /** A reservation is a key of another client, which leaves the key to the client for which it is reserved. */
    const freed = (): ReadonlyMap<string, Value> | undefined =>
      isReserved(before.text) ? this.#step("n1 releases another", values) : values;
    const make = (name: string, from: ReadonlyMap<string, Value> | undefined) =>
      from === undefined ? undefined : this.#step(name, from);
    if (kind === "acquire" && answer === 1) {
      const after = make("n1 grants A", freed());
      if (after === undefined || !mayVote) return after;
      if (after.get("nodes.n1.A.voted") !== true) this.#note("a vote that the model does not count", [...values]);
      const votes = this.#votes.get(`${token} ${lock}`) ?? { nodes: new Set(), ttl };
      this.#votes.set(`${token} ${lock}`, votes);
      votes.nodes.add(server.name);
      return after;
    }
    if (kind === "release" && isMine) return make("n1 releases A", values);
    if (kind === "extend" && isMine && (answer === 1 || answer === 2)) {
      const after = make("n1 extends A", values);
      if (after === undefined || !mayVote || answer !== 1) return after;
      if (after.get("nodes.n1.A.extends") !== true)
        this.#note("an extension that the model does not count", [...values]);
      const votes = this.#extensions.get(`${token} ${lock}`) ?? new Set();
      this.#extensions.set(`${token} ${lock}`, votes);
      votes.add(server.name);
      return after;
    }
    const isRepair = (kind === "extend" && (answer === 1 || answer === 2)) || (kind === "repair" && answer === 1);
    if (!isRepair || isMine) return undefined;
    if (kind === "extend" && answer === 1) this.#note("a repaired node counts", { lock, token });
    return make("n1 repairs A", freed());
  }

  #compare(lock: string, predicted: KeyState, after: KeyState, args: readonly string[]): void {
    if (predicted.text === after.text) {
      if (after.text === undefined || isReserved(after.text)) return;
      if (Math.abs(after.expiresMs - predicted.expiresMs) > 1) {
        this.#note("another expiry than the model's", { lock, after, predicted, args });
      }
      return;
    }
    const isFree = ({ text }: KeyState): boolean => text === undefined || isReserved(text);
    if (!isFree(after) || !isFree(predicted))
      this.#note("another key than the model's", { lock, after, predicted, args });
  }

  #granted(hold: Hold): void {
    const { lock, resources, fencingToken, machine } = hold;
    for (const resource of resources) {
      const votes = this.#votes.get(`${lock.token} ${resource}`);
      this.#count("A has a quorum: granted");
      if (votes === undefined || votes.nodes.size < this.#quorum) {
        this.#note("a grant without a quorum of votes", { fencingToken, nodes: [...(votes?.nodes ?? [])] });
      } else if (lock.remaining() > validityMs(votes.ttl, this.#drift) + 0.01) {
        this.#note("a longer validity than the rule's", { leftMs: lock.remaining(), ttl: votes.ttl });
      }
    }
    this.#held.add({ hold, endMs: validityEnd(lock, machine)?.monotonicMs ?? 0 });
  }

  /** An end moves only if a quorum has extended the lease since the last move. */
  #check(): void {
    for (const each of this.#held) {
      const { lock, machine, resources, fencingToken } = each.hold;
      const endMs = validityEnd(lock, machine)?.monotonicMs;
      if (endMs === undefined) this.#held.delete(each);
      if (endMs === undefined || endMs <= each.endMs + 0.1) continue;
      each.endMs = endMs;
      for (const resource of resources) {
        const votes = this.#extensions.get(`${lock.token} ${resource}`);
        this.#count("A has a quorum: extended");
        if ((votes?.size ?? 0) < this.#quorum) this.#note("an extension without a quorum of votes", { fencingToken });
        this.#extensions.delete(`${lock.token} ${resource}`);
      }
    }
  }
}

/** Replaces a method by `around`, which calls the original with `own`. Returns a function that restores the method. */
function wrap<Self extends object>(
  prototype: Self,
  name: keyof Self,
  around: (self: Self, given: readonly (readonly string[])[], own: () => unknown) => unknown,
): () => void {
  const method = Reflect.get(prototype, name) as (...given: readonly unknown[]) => unknown;
  Reflect.set(prototype, name, function (this: Self, ...given: readonly (readonly string[])[]): unknown {
    return around(this, given, () => Reflect.apply(method, this, given));
  });
  return () => void Reflect.set(prototype, name, method);
}

function clockOf(server: Server): number {
  return Math.floor(server.nowUs() / 1_000);
}

function keyOf(server: Server, key: string): KeyState {
  const found = server.store.peek(key);
  return { text: found?.text, expiresMs: found?.expiresMs ?? (found === undefined ? 0 : Number.POSITIVE_INFINITY) };
}

function registerOf(server: Server, name: string): number {
  const [text] = server.store.call("HMGET", ["{x}:node", name]) as readonly (string | null)[];
  return Number(text ?? 0);
}

function isReserved(text: string | undefined): boolean {
  return text?.startsWith("reserved:") === true;
}

/** Reads the request of a batch, as rules/operation.ts writes it. */
function readBatch(args: readonly string[]): readonly Operation[] {
  const isReleases = args[0]?.startsWith("R") === true;
  const registerCount = isReleases ? 0 : Number(args[1]);
  const texts = args.slice(isReleases ? 1 : 2 + registerCount);
  let first = isReleases ? 2 : 3;
  let register = 2;
  return texts.map((text) => {
    const operation = readOperation(text);
    const { kind, count } = operation;
    const own = { ...operation, first };
    first += count * (1 + sideKeysOf(text));
    if (kind !== "acquire") return own;
    register += count;
    return { ...own, registers: args.slice(register - count, register) };
  });
}

const sideKeysOf = (text: string): number => (/^[NeEP]/.test(text) ? 1 : 0);

function readOperation(text: string): Operation {
  const empty = { token: "", ballot: 0, ttl: 0, first: 0, count: 1, registers: [] };
  const split = (digits: string): readonly string[] =>
    (digits.match(/\d{5}/g) ?? []).map((name) => String(Number(name)));
  const letter = text[0] ?? "";
  if (letter === "a") {
    return {
      ...empty,
      kind: "acquire",
      token: text.slice(1, 42),
      ballot: Number(text.slice(42, 58)),
      ttl: Number(text.slice(58)),
    };
  }
  if (letter === "e") {
    const [token, ballot, ttl] = [text.slice(1, 42), Number(text.slice(42, 58)), Number(text.slice(63))];
    return { ...empty, kind: "extend", token, ballot, ttl, registers: split(text.slice(58, 63)) };
  }
  if (letter === "r") return { ...empty, kind: "release", token: text.slice(1) };
  const fields = text.slice(1).split(" ");
  const count = Number(fields[0]);
  if (letter === "A" || letter === "N") {
    return {
      ...empty,
      kind: "acquire",
      count,
      token: fields[1] ?? "",
      ballot: Number(fields[2]),
      ttl: Number(fields[4]),
    };
  }
  if (letter === "E" || letter === "P") {
    const [, ttl, ballot, digits = "", token = ""] = fields;
    const kind = letter === "E" ? "extend" : "repair";
    return { ...empty, kind, count, token, ballot: Number(ballot), ttl: Number(ttl), registers: split(digits) };
  }
  return { ...empty, kind: letter === "R" ? "release" : "other", count, token: fields[1] ?? "" };
}
