/** What a quorum of lock nodes knows of the schedules, for reads from any process. */
import { median } from "@x/redlock-core/protocol";
import type { Slice } from "../kit/slice.ts";
import { newestOf, type RegisterAnswer } from "./register-store.ts";
import { DEFINITION, type Definition, definitionOf, orderOf, SET, setOf } from "./rules/definition.ts";
import { isLater, isValidLine, NOTE, notedTick } from "./rules/lines.ts";

/** The nodes' knowledge of all schedules. */
export interface KnownSchedules {
  /** The latest line of each field, from the register and the mailboxes. */
  readonly lines: ReadonlyMap<string, string>;
  /** Number of runs that are recorded as active, by the name of the schedule. */
  readonly running: ReadonlyMap<string, number>;
}

/** The schedules as data. */
export interface KnownDefinitions {
  /** Revision of the set, 0 if there is none. */
  readonly revision: number;
  /** The greatest version of the set and of the orders, 0 if there are none. */
  readonly version: number;
  readonly definitions: ReadonlyMap<string, Definition>;
  /** Texts that are damaged, or that this version does not know. */
  readonly wrong: readonly string[];
}

/** Combines the newest version of any node with the orders in the mailboxes. */
export async function knownFrom(answers: readonly RegisterAnswer[], slice: Slice): Promise<KnownSchedules> {
  const lines = new Map<string, string>();
  const running = new Map<string, number>();
  for (const list of [newestOf(answers).fields, ...answers.map(({ mail }) => mail)]) {
    for (const [field, line] of list) {
      if (slice.isOver) await slice.another();
      if (isLater(line, lines.get(field))) lines.set(field, line);
      if (!field.startsWith(NOTE) || !isValidLine(field, line)) continue;
      const { name } = notedTick(field);
      running.set(name, (running.get(name) ?? 0) + 1);
    }
  }
  return { lines, running };
}

/** Returns the schedules as data that are in force with these lines: the set, and the orders that are newer. */
export async function definitionsIn(
  lines: Iterable<readonly [string, string]>,
  slice: Slice,
): Promise<KnownDefinitions> {
  let set = { revision: 0, version: 0, texts: [] as Iterable<string> };
  const orders: [name: string, line: string][] = [];
  for (const [field, line] of lines) {
    if (slice.isOver) await slice.another();
    if (field === SET) set = setOf(line) ?? set;
    else if (field.startsWith(DEFINITION)) orders.push([field.slice(DEFINITION.length), line]);
  }
  const wrong: string[] = [];
  const definitions = new Map<string, Definition>();
  for (const text of set.texts) {
    if (slice.isOver) await slice.another();
    const definition = definitionOf(text);
    if (definition === undefined) wrong.push(text);
    else definitions.set(definition.name, definition);
  }
  let { version } = set;
  for (const [name, line] of orders) {
    if (slice.isOver) await slice.another();
    const order = orderOf(line);
    if (order === undefined || order.version <= set.version) continue;
    version = Math.max(version, order.version);
    definitions.delete(name);
    if (order.text === undefined) continue;
    const definition = definitionOf(order.text);
    if (definition?.name !== name) wrong.push(order.text);
    else definitions.set(name, definition);
  }
  return { revision: set.revision, version, definitions, wrong };
}

/** Returns the time by the clocks of the nodes, which may differ from the clock of this process. */
export function nodeTimeMs(answers: readonly RegisterAnswer[], wallMs: number): number {
  return Math.floor(wallMs - median(answers.map(({ aheadMs }) => aheadMs)));
}
