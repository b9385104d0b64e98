/**
 * The state of the schedules, on the lock nodes and by majority; fenced by the term wherever the leader writes.
 *
 * Guaranteed: a tick whose claim resolves `claimed` is on a quorum, so every later leader that reads a quorum takes it as dealt
 * with. Not guaranteed: that it has run.
 */

import { Slice } from "../kit/slice.ts";
import type { Ledger } from "../record/ledger.ts";
import type { NamedTick } from "./report.ts";
import { CLAIM_TICKS } from "./scripts/claim-ticks.lua.ts";
import { ORDER } from "./scripts/order.lua.ts";
import { READ_TICKS } from "./scripts/read-ticks.lua.ts";
import { REPEAT_REQUESTS } from "./scripts/repeat-requests.lua.ts";
import { SETTLE_ENTRIES } from "./scripts/settle-entries.lua.ts";
import { type ClaimAnswer, type ClaimOutcome, claimOutcome, highestStored, mayBeStored } from "./settle.ts";

export interface Claim {
  readonly name: string;
  readonly atMs: number;
  /** The last tick that ran or is about to; 0: none. */
  readonly lastMs: number;
  readonly missed: number;
  readonly mode: "once" | "least" | "skip" | "hold";
  readonly attempt: number;
  /** Under which it was begun; default: that of the leader who claims. */
  readonly term?: number | undefined;
  /** Of the last order to pause or resume that the leader knows; a node that missed it holds up nothing. Default 0: none. */
  readonly pauseVersion?: number | undefined;
}

export interface Claimed {
  readonly outcomes: readonly ClaimOutcome[];
  /** A newer term was seen: ours is over. */
  readonly isStale: boolean;
  /** A node had no state: it is new, or lost it. */
  readonly sawBlank: boolean;
}

export interface ScheduleState {
  readonly accountedMs: number;
  readonly lastMs: number;
  readonly missed: number;
}

export interface PendingTick extends NamedTick {
  readonly attempt: number;
}

/** A tick that is noted as running. */
export interface RunningTick extends PendingTick {
  readonly term: number;
}

export interface Pause {
  readonly version: number;
  readonly isPaused: boolean;
  /** When a pause last ended, by the clock of the process that ended it; 0: never. */
  readonly resumedMs: number;
}

export interface PauseOrder {
  readonly name: string;
  readonly isPaused: boolean;
  readonly nowMs: number;
  /** What holds if nobody has given an order yet. */
  readonly isPausedAtFirst: boolean;
}

export interface Request {
  readonly id: string;
  readonly name: string;
  readonly atMs: number;
}

export interface StoredState {
  readonly schedules: ReadonlyMap<string, ScheduleState>;
  /** Started under an earlier term, at-least-once, and not recorded as finished. */
  readonly pending: readonly RunningTick[];
  /** On any node, also on too few for a quorum to have stored them. */
  readonly noted: readonly RunningTick[];
  readonly running: ReadonlyMap<string, number>;
  readonly paused: ReadonlyMap<string, Pause>;
  /** Schedules whose last order to pause or resume a node has missed. */
  readonly halfPaused: readonly string[];
  readonly requests: readonly Request[];
  /** Of the requests on any node, also on too few for a quorum to have stored them. */
  readonly requestIds: readonly string[];
  readonly sawBlank: boolean;
  readonly isStale: boolean;
}

interface NodeState {
  readonly node: string;
  readonly term: number;
  readonly isBlank: boolean;
  readonly ticks: ReadonlyMap<string, string>;
  readonly paused: ReadonlyMap<string, string>;
  readonly running: ReadonlyMap<string, string>;
  readonly requests: ReadonlyMap<string, string>;
}

/** Entries of one request to a node; a script blocks the node for about 5 µs an entry. */
export const CLAIMS_PER_REQUEST = 500;

export class TickStore {
  readonly #ledger: Ledger;
  readonly #prefix: string;
  readonly #keepMs: number;

  constructor(ledger: Ledger, prefix: string, keepMs: number) {
    this.#ledger = ledger;
    this.#prefix = prefix;
    this.#keepMs = keepMs;
  }

  /** `isWhole`: the claims are the state of every schedule. @throws QuorumUnreachableError if fewer than a quorum answered at all */
  async claim(term: number, claims: readonly Claim[], isWhole = false): Promise<Claimed> {
    const outcomes: ClaimOutcome[] = [];
    let sawBlank = false;
    for (let start = 0; start < claims.length; start += CLAIMS_PER_REQUEST) {
      const end = start + CLAIMS_PER_REQUEST;
      const part = await this.#claimPart(term, claims.slice(start, end), isWhole && end >= claims.length);
      if (part.isStale) return part;
      outcomes.push(...part.outcomes);
      sawBlank ||= part.sawBlank;
    }
    return { outcomes, isStale: false, sawBlank };
  }

  /** `term`: of the leader who asks; undefined for a bystander. `everything` false: all but how far they are dealt with. @throws QuorumUnreachableError */
  async read(term: number | undefined, everything: boolean): Promise<StoredState> {
    const keys = [
      this.#ledger.key("leader"),
      this.#key("ticks"),
      this.#key("paused"),
      this.#key("running"),
      this.#key("requests"),
    ];
    // The leader waits for every node that answers in time: a tick that was claimed on a minority only is then known not to have
    // run, and a node that lost its state is found.
    const enough = (nodes: readonly NodeState[]): boolean =>
      term === undefined || nodes.length === this.#ledger.nodeCount;
    const answers = await this.#ledger.ask(
      "reading schedules",
      READ_TICKS,
      keys,
      [everything ? "1" : "0"],
      parseState,
      enough,
    );
    if (term === undefined) return await this.#merge(answers, Number.POSITIVE_INFINITY);
    if (answers.some((node) => node.term > term)) return { ...EMPTY, isStale: true };
    const fenced = answers.filter((node) => node.term === term);
    if (fenced.length >= this.#ledger.quorum) return await this.#merge(fenced, term);
    throw this.#ledger.unreachable(
      "reading schedules behind the fence of the term",
      fenced.map(({ node }) => ({ node, vote: "granted", tookMs: 0 })),
    );
  }

  /** Notes ticks as ended; false if the term is stale. @throws QuorumUnreachableError */
  async finish(term: number, ticks: readonly NamedTick[]): Promise<boolean> {
    return this.#settle("running", term, ticks.map(noteOf));
  }

  /** Takes requests as dealt with; false if the term is stale. @throws QuorumUnreachableError */
  async take(term: number, ids: readonly string[]): Promise<boolean> {
    return this.#settle("requests", term, ids);
  }

  /**
   * Wins over every order that a node which answers in time has stored, whatever the clock was that gave its version: the version is `nowMs`, or
   * more if a node knows of one that is as high. Of two orders at once one wins, on all nodes the same. An order to resume what is not
   * paused ends no pause. @throws QuorumUnreachableError
   */
  async setPaused({ name, isPaused, nowMs, isPausedAtFirst }: PauseOrder): Promise<void> {
    const known = (await this.read(undefined, false)).paused.get(name);
    const endsPause = !isPaused && (known?.isPaused ?? isPausedAtFirst);
    const resumedMs = endsPause ? nowMs : (known?.resumedMs ?? 0);
    let version = nowMs;
    for (;;) {
      const answers = await this.#orderPause(name, { version, isPaused, resumedMs }, this.#ledger.nodeCount);
      const highest = Math.max(...answers);
      if (highest < version) return;
      version = highest + 1;
    }
  }

  /** A node that lost its state, or missed this order, has it again; one that knows of a later order keeps that. @throws QuorumUnreachableError */
  async restorePause(name: string, pause: Pause): Promise<void> {
    await this.#orderPause(name, pause, this.#ledger.quorum);
  }

  /** @throws QuorumUnreachableError */
  async request(id: string, name: string, atMs: number): Promise<void> {
    await this.#order("requests", id, requestLine({ name, atMs }), this.#ledger.quorum);
  }

  /** Nodes that lost these requests, or from which they were taken, have them again; false if the term is stale. @throws QuorumUnreachableError */
  async repeatRequests(term: number, requests: readonly Request[]): Promise<boolean> {
    if (requests.length === 0) return true;
    const keys = [this.#ledger.key("leader"), this.#key("requests")];
    const args = [String(term), String(this.#keepMs), ...requests.flatMap((each) => [each.id, requestLine(each)])];
    const answers = await this.#ledger.ask("repeating requests", REPEAT_REQUESTS, keys, args, String);
    return !answers.includes("stale");
  }

  async #claimPart(term: number, claims: readonly Claim[], completes: boolean): Promise<Claimed> {
    const keys = [this.#ledger.key("leader"), this.#key("ticks"), this.#key("paused"), this.#key("running")];
    const args = [String(term), String(this.#keepMs), completes ? "1" : "0"];
    for (const claim of claims) {
      args.push(
        claim.name,
        String(claim.atMs),
        String(claim.lastMs),
        String(claim.missed),
        claim.mode,
        `${claim.term ?? term} ${claim.attempt}`,
        String(claim.pauseVersion ?? 0),
      );
    }
    const outcomesOf = (nodes: readonly NodeClaim[]): readonly ClaimOutcome[] =>
      claims.map((_, index) =>
        claimOutcome(
          nodes.flatMap((node) => node.answers[index] ?? []),
          this.#ledger,
        ),
      );
    const answers = await this.#ledger.ask("claiming ticks", CLAIM_TICKS, keys, args, parseClaim, (nodes) =>
      outcomesOf(nodes).every((outcome) => outcome.kind !== "open"),
    );
    return {
      outcomes: outcomesOf(answers),
      isStale: answers.some((node) => node.isStale),
      sawBlank: answers.some((node) => node.wasBlank),
    };
  }

  async #settle(hash: string, term: number, fields: readonly string[]): Promise<boolean> {
    if (fields.length === 0) return true;
    const keys = [this.#ledger.key("leader"), this.#key(hash)];
    const answers = await this.#ledger.ask(`settling ${hash}`, SETTLE_ENTRIES, keys, [String(term), ...fields], String);
    return !answers.includes("stale");
  }

  #orderPause(name: string, { version, isPaused, resumedMs }: Pause, awaited: number): Promise<readonly number[]> {
    return this.#order("paused", name, `${version} ${isPaused ? 1 : 0} ${resumedMs}`, awaited);
  }

  /** Of each node that answered the version that stays there instead, or -1; of `awaited` nodes, unless some do not answer in time. */
  #order(hash: string, field: string, value: string, awaited: number): Promise<readonly number[]> {
    const args = [field, value, String(this.#keepMs), this.#ledger.channel];
    const enough = (answers: readonly number[]): boolean => answers.length >= awaited;
    return this.#ledger.ask("ordering", ORDER, [this.#key(hash)], args, Number, enough);
  }

  #key(name: string): string {
    return this.#ledger.key(`${this.#prefix}${name}`);
  }

  async #merge(nodes: readonly NodeState[], term: number): Promise<StoredState> {
    const { quorum, nodeCount, clock } = this.#ledger;
    const slice = new Slice(clock);
    const informed = nodes.filter((node) => !node.isBlank);
    const unknown = nodeCount - informed.length;
    const schedules = new Map<string, ScheduleState>();
    for (const name of fieldsOf(informed.map((node) => node.ticks))) {
      if (slice.isOver) await slice.another();
      if (name === "") continue;
      const states = informed.flatMap((node) => parseSchedule(node.ticks.get(name)) ?? []);
      const accountedMs = highestStored(
        states.map((state) => state.accountedMs),
        unknown,
        quorum,
      );
      const stored = states.filter((state) => state.accountedMs === accountedMs);
      if (accountedMs === undefined || stored[0] === undefined) continue;
      schedules.set(name, {
        accountedMs,
        lastMs: Math.max(...stored.map((state) => state.lastMs)),
        missed: Math.max(...stored.map((state) => state.missed)),
      });
    }
    const pending: RunningTick[] = [];
    const running = new Map<string, number>();
    const noted: RunningTick[] = [];
    for (const field of fieldsOf(nodes.map((node) => node.running))) {
      const lines = nodes.flatMap((node) => node.running.get(field) ?? []);
      // Within a term an attempt is only ever taken back.
      const newest = lines.map(parseRunning).toSorted((a, b) => b.term - a.term || a.attempt - b.attempt)[0];
      if (newest === undefined) continue;
      const split = field.lastIndexOf("@");
      const name = field.slice(0, split);
      const tick = { name, atMs: Number(field.slice(split + 1)), ...newest };
      noted.push(tick);
      if (!mayBeStored(informed.filter((node) => node.running.has(field)).length, unknown, quorum)) continue;
      running.set(name, (running.get(name) ?? 0) + 1);
      if (newest.term < term) pending.push(tick);
    }
    const paused = new Map<string, Pause>();
    const halfPaused: string[] = [];
    for (const name of fieldsOf(nodes.map((node) => node.paused))) {
      const orders = nodes
        .flatMap((node) => parsePause(node.paused.get(name)) ?? [])
        .toSorted((a, b) => b.version - a.version || Number(b.isPaused) - Number(a.isPaused));
      const [newest] = orders;
      if (newest === undefined) continue;
      paused.set(name, newest);
      if (orders.length < nodes.length || orders.some(({ version }) => version < newest.version)) halfPaused.push(name);
    }
    const requests: Request[] = [];
    const requestIds = [...fieldsOf(nodes.map((node) => node.requests))];
    for (const id of requestIds) {
      const lines = nodes.flatMap((node) => node.requests.get(id) ?? []);
      const [at, ...name] = (lines[0] ?? "").split(" ");
      if (mayBeStored(lines.length, unknown, quorum)) requests.push({ id, name: name.join(" "), atMs: Number(at) });
    }
    return {
      schedules,
      pending: pending.toSorted((a, b) => a.atMs - b.atMs),
      noted,
      running,
      paused,
      halfPaused,
      requests: requests.toSorted((a, b) => a.atMs - b.atMs),
      requestIds,
      sawBlank: nodes.some((node) => node.isBlank),
      isStale: false,
    };
  }
}

function requestLine({ name, atMs }: NamedTick): string {
  return `${atMs} ${name}`;
}

/** The name under which a tick is noted as running. */
export function noteOf({ name, atMs }: NamedTick): string {
  return `${name}@${atMs}`;
}

const EMPTY: StoredState = {
  schedules: new Map(),
  pending: [],
  noted: [],
  running: new Map(),
  paused: new Map(),
  halfPaused: [],
  requests: [],
  requestIds: [],
  sawBlank: false,
  isStale: false,
};

interface NodeClaim {
  readonly isStale: boolean;
  readonly wasBlank: boolean;
  readonly answers: readonly ClaimAnswer[];
}

function parseClaim(value: unknown): NodeClaim {
  const [first, answers] = Array.isArray(value) ? (value as readonly unknown[]) : [];
  if (first === "stale" || !Array.isArray(answers)) return { isStale: true, wasBlank: false, answers: [] };
  return {
    isStale: false,
    wasBlank: Number(first) === 0,
    answers: answers.map((answer) => (answer === 1 ? "ok" : answer === 2 ? "paused" : { taken: Number(answer) })),
  };
}

function parseState(value: unknown, node: string): NodeState {
  if (!Array.isArray(value) || value.length !== 6) throw new TypeError("unexpected reply to read-ticks");
  const [term, known, ticks, paused, running, requests] = value as readonly unknown[];
  return {
    node,
    term: Number(term),
    isBlank: Number(known) === 0,
    ticks: pairs(ticks),
    paused: pairs(paused),
    running: pairs(running),
    requests: pairs(requests),
  };
}

function pairs(list: unknown): ReadonlyMap<string, string> {
  const map = new Map<string, string>();
  if (!Array.isArray(list)) return map;
  for (let index = 0; index < list.length; index += 2) map.set(String(list[index]), String(list[index + 1]));
  return map;
}

function parseSchedule(line: string | undefined): ScheduleState | undefined {
  const [accountedMs, , lastMs, missed] = (line ?? "").split(" ").map(Number);
  return accountedMs === undefined || lastMs === undefined || missed === undefined
    ? undefined
    : { accountedMs, lastMs, missed };
}

function parsePause(line: string | undefined): Pause | undefined {
  const [version, isPaused, resumedMs] = (line ?? "").split(" ");
  if (isPaused === undefined) return undefined;
  return { version: Number(version), isPaused: isPaused === "1", resumedMs: Number(resumedMs ?? 0) };
}

function parseRunning(line: string): { readonly term: number; readonly attempt: number } {
  const [term, attempt] = line.split(" ").map(Number);
  return { term: term ?? 0, attempt: attempt ?? 1 };
}

function fieldsOf(maps: readonly ReadonlyMap<string, string>[]): ReadonlySet<string> {
  return new Set(maps.flatMap((map) => [...map.keys()]));
}
