/**
 * What the lock nodes are asked about a scheduler. Each has its register, which the leader writes, and its mailbox, for
 * everybody's orders.
 */
import type { NodeScript, QuorumUnreachableError } from "@x/redlock-core";
import type { Ledger } from "../record/ledger.ts";
import { LINES_PER_TICK } from "./rules/history.ts";
import { linesIn } from "./rules/lines.ts";
import { ORDER } from "./scripts/order.lua.ts";
import { READ_HISTORY } from "./scripts/read-history.lua.ts";
import { READ_REGISTER } from "./scripts/read-register.lua.ts";
import { WRITE_HISTORY } from "./scripts/write-history.lua.ts";
import { WRITE_REGISTER } from "./scripts/write-register.lua.ts";

/** Names one state of a register: a term has one writer, and its steps ascend. */
export interface Version {
  readonly term: number;
  readonly step: number;
}

/** What one node says of itself. */
export interface Answer {
  readonly node: string;
  /** Whether the node knows a newer term. */
  readonly isStale: boolean;
  /** The newer term that the node has promised, if `isStale`; else 0. */
  readonly promised: number;
  readonly version: Version;
  /** The `run_id` of the process that answered. */
  readonly process: string;
  /** Whether all it has was given to this very process, which then has forgotten nothing. */
  readonly isWhole: boolean;
  /** The own fields of the register that had a value which cannot be right, and the value. Empty if there are none. */
  readonly wrong: string;
  /**
   * Milliseconds by which this process's wall clock is ahead of the node's, negative if behind. 0 if the node's time is
   * between request and reply.
   */
  readonly aheadMs: number;
  readonly mail: readonly (readonly [field: string, line: string])[];
  /** The fields are found as they are asked for, once. */
  readonly fields: Iterable<readonly [field: string, line: string]>;
}

export interface Write {
  readonly version: Version;
  /** The version that this changes. It is undefined if this is everything. */
  readonly from: Version | undefined;
  /** The answers that everything is for: a node that says something else by then may know better. */
  readonly gaps: readonly Pick<Answer, "process" | "version">[];
  /** The orders that the register has. */
  readonly drops: readonly string[];
  /** Each field is followed by its line. The line "" takes its field out. */
  readonly fields: readonly string[];
}

/** A line of a schedule's history. */
export interface HistoryLine {
  readonly name: string;
  readonly key: string;
  readonly line: string;
}

export type Enough = (answers: readonly Answer[]) => boolean;

export function isNewer(a: Version, b: Version): boolean {
  return a.term > b.term || (a.term === b.term && a.step > b.step);
}

export function newestOf(answers: readonly Answer[]): Answer {
  return answers.reduce((best, each) => (isNewer(each.version, best.version) ? each : best));
}

/** A history is cut when it has become longer than so many bytes a line: counting its lines takes time. */
const CUT_BYTES = 110;

/** One request is for so many histories, of 2 kB each as a rule, and 20 kB at most. */
const MOST_HISTORIES = 100;

export class Store {
  readonly ledger: Ledger;
  readonly #keys: readonly [register: string, mailbox: string];
  readonly #ticks: readonly [histories: string, newest: string];
  readonly #keepMs: string;

  constructor(ledger: Ledger, prefix: string, keepMs: number) {
    this.ledger = ledger;
    this.#keys = [ledger.key(`${prefix}register`), ledger.key(`${prefix}mailbox`)];
    this.#ticks = [ledger.key(`${prefix}history`), ledger.key(`${prefix}newest`)];
    this.#keepMs = String(keepMs);
  }

  /** Reads a quorum, with the fields, for somebody who does not lead. @throws QuorumUnreachableError */
  look(): Promise<readonly Answer[]> {
    return this.#ask("reading schedules", READ_REGISTER, ["", "0", "1", this.#keepMs], () => true);
  }

  /** Reads and promises, with the fields, for a leader that takes office. @throws QuorumUnreachableError */
  promise(term: number, enough: Enough): Promise<readonly Answer[]> {
    return this.#ask("taking over schedules", READ_REGISTER, [String(term), "1", "1", this.#keepMs], enough);
  }

  /** Reads all nodes that answer in time. @throws QuorumUnreachableError */
  poll(term: number): Promise<readonly Answer[]> {
    const isFromAll: Enough = (answers) => answers.length === this.ledger.nodeCount;
    return this.#ask("looking for orders", READ_REGISTER, [String(term), "0", "0", this.#keepMs], isFromAll);
  }

  /** @throws QuorumUnreachableError */
  write({ version, from, gaps, drops, fields }: Write, enough: Enough): Promise<readonly Answer[]> {
    const versions = [version.term, version.step, from?.term ?? 0, from?.step ?? 0].map(String);
    const named = gaps.map((gap) => `${gap.process}:${gap.version.term}.${gap.version.step};`);
    const args = [...versions, named.join(""), this.#keepMs, String(drops.length / 2), ...drops];
    return this.#ask("writing schedules", WRITE_REGISTER, args.concat(fields), enough);
  }

  /**
   * Gives an order, or only asks with the line "". Resolves with the line that stays on each node, or "": of `awaited`
   * nodes, unless some do not answer in time.
   * @throws QuorumUnreachableError
   */
  order(field: string, line: string, awaited: number): Promise<readonly string[]> {
    const { ledger } = this;
    const args = [field, line, this.#keepMs, ledger.channel];
    return ledger.ask("ordering", ORDER, this.#keys, args, String, (lines) => lines.length >= awaited);
  }

  /** Adds to the histories of schedules, of each of which `kept` ticks stay. @throws QuorumUnreachableError */
  async record(lines: readonly HistoryLine[], kept: number): Promise<void> {
    const most = kept * LINES_PER_TICK;
    const args = [`^${"[^\n]*\n".repeat(most)}`, String(most * CUT_BYTES), this.#keepMs];
    for (const { name, key, line } of lines) args.push(JSON.stringify(name), `${key} `, line);
    await this.ledger.ask("writing down ticks", WRITE_HISTORY, this.#ticks, args, () => true);
  }

  /**
   * Resolves with the histories of schedules in their order, of each node that answers in time. One request is for
   * `MOST_HISTORIES` of them, and they are asked for one after another.
   * @throws QuorumUnreachableError
   */
  async historiesOf(names: readonly string[]): Promise<readonly (readonly string[])[]> {
    const all: (readonly string[])[] = [];
    for (let at = 0; at < names.length; at += MOST_HISTORIES) {
      const asked = names.slice(at, at + MOST_HISTORIES);
      const texts = await this.#readHistory(
        asked.map((name) => JSON.stringify(name)),
        (value) => (Array.isArray(value) ? (value as readonly (string | null)[]) : []),
      );
      for (const index of asked.keys()) all.push(texts.map((ofNode) => ofNode[index] ?? ""));
    }
    return all;
  }

  /**
   * Resolves with the name and newest line of each history, in turn, of each node that answers in time.
   * @throws as `historiesOf`
   */
  newestOfAll(): Promise<readonly string[]> {
    return this.#readHistory([], String);
  }

  #readHistory<Value>(fields: readonly string[], parse: (value: unknown) => Value): Promise<readonly Value[]> {
    const { ledger } = this;
    const isFromAll = (answers: readonly Value[]): boolean => answers.length === ledger.nodeCount;
    return ledger.ask("reading ticks", READ_HISTORY, this.#ticks, fields, parse, isFromAll);
  }

  /** Returns the error of a question that only these nodes answered as needed. */
  tooFew(answers: readonly Answer[]): QuorumUnreachableError {
    const votes = answers.map(({ node }) => ({ node, vote: "granted", tookMs: 0 }) as const);
    return this.ledger.unreachable("behind the fence of the term", votes);
  }

  #ask(what: string, script: NodeScript, args: readonly string[], enough: Enough): Promise<readonly Answer[]> {
    const { clock } = this.ledger;
    const askedMs = clock.wallMs();
    const parse = (value: unknown, node: string): Answer => parseAnswer(value, node, [askedMs, clock.wallMs()]);
    return this.ledger.ask(what, script, this.#keys, args, parse, enough);
  }
}

function parseAnswer(value: unknown, node: string, [askedMs, repliedMs]: readonly [number, number]): Answer {
  const [outcome, term, step, process, isWhole, mail, nodeMs, wrong, fields] = Array.isArray(value)
    ? (value as readonly unknown[])
    : [];
  if (outcome !== "ok" && outcome !== "stale") throw new TypeError("unexpected reply about a register");
  const isStale = outcome === "stale";
  const timeMs = Number(nodeMs ?? askedMs);
  return {
    node,
    isStale,
    promised: isStale ? Number(term ?? 0) : 0,
    version: isStale ? { term: 0, step: 0 } : { term: Number(term ?? 0), step: Number(step ?? 0) },
    process: String(process),
    isWhole: isWhole === 1,
    wrong: typeof wrong === "string" ? wrong.trim() : "",
    aheadMs: Math.max(askedMs - timeMs, 0) || Math.min(repliedMs - timeMs, 0),
    mail: pairs(mail),
    fields: linesIn(typeof fields === "string" ? fields : ""),
  };
}

function pairs(list: unknown): readonly (readonly [string, string])[] {
  const texts = Array.isArray(list) ? (list as readonly string[]) : [];
  return texts.flatMap((field, at) => (at % 2 === 0 ? [[field, texts[at + 1] ?? ""] as const] : []));
}
