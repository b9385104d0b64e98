/**
 * What the store recorded, in the order in which it happened there. The store writes an event in the same script as the change
 * that it stands for, so the list is the truth about the run, whatever the processes believe.
 */

/**
 * - `begin`: a run of a flight has read the board
 * - `written`: its board was stored
 * - `stale`: it came with an older fencing token than the board has seen, and was refused
 * - `repeated`: the flight was on the board already (the job ran again after a crash), nothing was changed
 */
export type EventKind = "begin" | "written" | "stale" | "repeated";

export interface HistoryEvent {
  readonly kind: EventKind;
  /** One execution of the processor; a job that runs again is another run. */
  readonly run: string;
  readonly flight: number;
  readonly origin: string;
  /** 0 in a run without locks. */
  readonly fencingToken: number;
  readonly worker: string;
  /** The store's clock, in ms. */
  readonly atMs: number;
}

const kinds: readonly string[] = ["begin", "written", "stale", "repeated"] satisfies EventKind[];

/** Reads an event as the store's scripts write it: its fields, separated by spaces. */
export function parseEvent(text: string): HistoryEvent {
  const [kind = "", run = "", flight = "", origin = "", fencingToken = "", worker = "", atMs = ""] = text.split(" ");
  if (!isKind(kind) || atMs === "") throw new Error(`not an event: ${text}`);
  return { kind, run, flight: Number(flight), origin, fencingToken: Number(fencingToken), worker, atMs: Number(atMs) };
}

function isKind(kind: string): kind is EventKind {
  return kinds.includes(kind);
}

/** One leadership, as the cursor recorded it when it was claimed. */
export interface Leadership {
  readonly term: number;
  readonly leader: string;
  readonly atMs: number;
}

/** Reads a leadership as the cursor's script writes it. */
export function parseLeadership(text: string): Leadership {
  const [term = "", leader = "", atMs = ""] = text.split(" ");
  if (atMs === "") throw new Error(`not a leadership: ${text}`);
  return { term: Number(term), leader, atMs: Number(atMs) };
}
