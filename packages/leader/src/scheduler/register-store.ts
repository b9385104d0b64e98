/**
 * The requests of a scheduler to the lock nodes. Each node has a register, which the leader writes, and a mailbox, to
 * which any process may add orders.
 */
import type { NodeScript, QuorumUnreachableError } from "@x/redlock-core";
import { DAY_MS } from "@x/redlock-core/kit";
import type { Ledger } from "../record/ledger.ts";
import { LINES_PER_TICK } from "./rules/history.ts";
import { linesIn } from "./rules/lines.ts";
import { FORGET_HISTORY } from "./scripts/forget-history.lua.ts";
import { ORDER } from "./scripts/order.lua.ts";
import { READ_HISTORY } from "./scripts/read-history.lua.ts";
import { READ_REGISTER } from "./scripts/read-register.lua.ts";
import { WRITE_HISTORY } from "./scripts/write-history.lua.ts";
import { WRITE_REGISTER } from "./scripts/write-register.lua.ts";

/** Names one state of a register. Each term has one writer, whose steps ascend. */
export interface Version {
  readonly term: number;
  readonly step: number;
}

/** Reply of one node about its register. */
export interface RegisterAnswer {
  readonly node: string;
  /** Whether the node knows a newer term. */
  readonly isStale: boolean;
  /** The newer term that the node has promised, if `isStale`; else 0. */
  readonly promised: number;
  readonly version: Version;
  /** The `run_id` of the process that answered. */
  readonly process: string;
  /** Whether the node's current process received the whole register, so that it cannot have lost data. */
  readonly isWhole: boolean;
  /** The own fields of the register that had a value which cannot be right, and the value. Empty if there are none. */
  readonly wrong: string;
  /**
   * Milliseconds by which this process's wall clock is ahead of the node's, negative if behind. 0 if the node's time is
   * between request and reply.
   */
  readonly aheadMs: number;
  readonly mail: readonly (readonly [field: string, line: string])[];
  /** The fields of the register. They are parsed during the iteration, which is possible once. */
  readonly fields: Iterable<readonly [field: string, line: string]>;
}

export interface Write {
  readonly version: Version;
  /** The version that this step changes. Undefined for a full write. */
  readonly from: Version | undefined;
  /** The answers for which a full write is valid. A node whose answer has changed ignores the write. */
  readonly gaps: readonly Pick<RegisterAnswer, "process" | "version">[];
  /** Orders to remove from the mailboxes, because the register contains them: each field followed by its line. */
  readonly drops: readonly string[];
  /** Fields to write: each field followed by its line. The line "" removes its field. */
  readonly fields: readonly string[];
}

/** A line of a schedule's history. */
export interface HistoryLine {
  readonly name: string;
  readonly key: string;
  readonly line: string;
}

export type Enough = (answers: readonly RegisterAnswer[]) => boolean;

export function isNewer(a: Version, b: Version): boolean {
  return a.term > b.term || (a.term === b.term && a.step > b.step);
}

export function newestOf(answers: readonly RegisterAnswer[]): RegisterAnswer {
  return answers.reduce((best, each) => (isNewer(each.version, best.version) ? each : best));
}

/**
 * A history is shortened when it is longer than this number of bytes per line. Counting its lines would take longer.
 */
const CUT_BYTES = 110;

/** The greatest number of histories in one request. A history usually has 2 kB, and 20 kB at most. */
const MOST_HISTORIES = 100;

export class RegisterStore {
  readonly ledger: Ledger;
  readonly #keys: readonly [register: string, mailbox: string];
  readonly #ticks: readonly [histories: string, newest: string];
  #keepMs = "";
  #windowMs = -1;

  constructor(ledger: Ledger, prefix: string, windowMs: number) {
    this.ledger = ledger;
    this.#keys = [ledger.key(`${prefix}register`), ledger.key(`${prefix}mailbox`)];
    this.#ticks = [ledger.key(`${prefix}history`), ledger.key(`${prefix}newest`)];
    this.cover(windowMs);
  }

  /** Makes the stored state live longer than a window of catching up. */
  cover(windowMs: number): void {
    this.#windowMs = Math.max(this.#windowMs, windowMs);
    this.#keepMs = String(30 * DAY_MS + 2 * this.#windowMs);
  }

  /** Reads the registers of a quorum with their fields, without a promise. @throws QuorumUnreachableError */
  look(): Promise<readonly RegisterAnswer[]> {
    return this.#ask("reading schedules", READ_REGISTER, ["", "0", "1", this.#keepMs], () => true);
  }

  /** Reads the registers with their fields, and makes the nodes promise this term. @throws QuorumUnreachableError */
  promise(term: number, enough: Enough): Promise<readonly RegisterAnswer[]> {
    return this.#ask("taking over schedules", READ_REGISTER, [String(term), "1", "1", this.#keepMs], enough);
  }

  /** Reads all nodes that answer in time, without the fields. @throws QuorumUnreachableError */
  poll(term: number): Promise<readonly RegisterAnswer[]> {
    const isFromAll: Enough = (answers) => answers.length === this.ledger.nodeCount;
    return this.#ask("looking for orders", READ_REGISTER, [String(term), "0", "0", this.#keepMs], isFromAll);
  }

  /** Writes a step or the whole register. @throws QuorumUnreachableError */
  write({ version, from, gaps, drops, fields }: Write, enough: Enough): Promise<readonly RegisterAnswer[]> {
    const versions = [version.term, version.step, from?.term ?? 0, from?.step ?? 0].map(String);
    const named = gaps.map((gap) => `${gap.process}:${gap.version.term}.${gap.version.step};`);
    const args = [...versions, named.join(""), this.#keepMs, String(drops.length / 2), ...drops];
    return this.#ask("writing schedules", WRITE_REGISTER, args.concat(fields), enough);
  }

  /**
   * Sends an order, or only reads with the line "". Resolves with the line that each node keeps, or "". Waits for
   * `awaited` nodes, unless some nodes do not answer in time.
   * @throws QuorumUnreachableError
   */
  order(field: string, line: string, awaited: number): Promise<readonly string[]> {
    const { ledger } = this;
    const args = [field, line, this.#keepMs, ledger.channel];
    return ledger.ask("ordering", ORDER, this.#keys, args, String, (lines) => lines.length >= awaited);
  }

  /** Adds lines to the histories of schedules. Each history keeps `kept` ticks. @throws QuorumUnreachableError */
  async record(lines: readonly HistoryLine[], kept: number): Promise<void> {
    const most = kept * LINES_PER_TICK;
    const args = [`^${"[^\n]*\n".repeat(most)}`, String(most * CUT_BYTES), this.#keepMs];
    for (const { name, key, line } of lines) args.push(JSON.stringify(name), `${key} `, line);
    await this.ledger.ask("writing down ticks", WRITE_HISTORY, this.#ticks, args, () => true);
  }

  /** Removes the histories of schedules. @throws QuorumUnreachableError */
  async forget(names: readonly string[]): Promise<void> {
    for (let at = 0; at < names.length; at += MOST_HISTORIES) {
      const fields = names.slice(at, at + MOST_HISTORIES).map((name) => JSON.stringify(name));
      await this.ledger.ask("forgetting ticks", FORGET_HISTORY, this.#ticks, fields, () => true);
    }
  }

  /**
   * Resolves with the histories of schedules, in the order of `names`: for each schedule one text from each node that
   * answers in time. Sends one request after another, each for up to `MOST_HISTORIES` schedules.
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
   * Resolves with one text from each node that answers in time. The text alternates the name and the newest line of
   * each history.
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

  /** Returns the error for a request that only these nodes answered as needed. */
  tooFew(answers: readonly RegisterAnswer[]): QuorumUnreachableError {
    const votes = answers.map(({ node }) => ({ node, vote: "granted", tookMs: 0 }) as const);
    return this.ledger.unreachable("behind the fence of the term", votes);
  }

  #ask(what: string, script: NodeScript, args: readonly string[], enough: Enough): Promise<readonly RegisterAnswer[]> {
    const { clock } = this.ledger;
    const askedMs = clock.wallMs();
    const parse = (value: unknown, node: string): RegisterAnswer => parseAnswer(value, node, [askedMs, clock.wallMs()]);
    return this.ledger.ask(what, script, this.#keys, args, parse, enough);
  }
}

function parseAnswer(value: unknown, node: string, [askedMs, repliedMs]: readonly [number, number]): RegisterAnswer {
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
