/** Pure: the plan of a run's faults, drawn from its seed. */
import { SeededRandom } from "../../packages/testing/src/world.ts";
import { FAULT_KINDS, type FaultKind } from "./events.ts";

export interface Fault {
  readonly kind: FaultKind;
  /** When it strikes, in ms after the run's start. */
  readonly atMs: number;
  readonly forMs: number;
  /** Number of the process or the server that is struck. */
  readonly target: number;
  /** Chooses the connection, its silent direction, and the direction of a clock step. */
  readonly choice: number;
}

export interface PlanOptions {
  readonly seed: string;
  readonly kinds: readonly FaultKind[];
  readonly faultyMs: number;
  /** The lease of a silent process. Faults last up to two and a half leases. */
  readonly leaseMs: number;
  readonly processes: number;
  readonly servers: number;
}

/** Longest server fault, in leases. Lock nodes lose a minority; a queue loses its only server. */
const LONGEST_SERVER_FAULT = 0.6;
const LONGEST_FAULT = 2.5;

/**
 * Draws faults that overlap. At any time, each process has at most one fault, and all servers together have at most
 * one. A majority of the lock nodes is always up, and no two nodes lose their data at the same time.
 */
export function planFaults(options: PlanOptions): Fault[] {
  const { kinds, faultyMs, leaseMs, processes, servers } = options;
  const random = new SeededRandom(options.seed);
  const processFreeAt = Array.from({ length: processes }, () => 0);
  let serversFreeAt = 0;
  const faults: Fault[] = [];
  for (let atMs = 0.3 * leaseMs; atMs < faultyMs; atMs += random.between(0.05, 0.35) * leaseMs) {
    const kind = random.pick(kinds);
    const isServers = strikesServer(kind);
    const forMs = random.between(0.1, isServers ? LONGEST_SERVER_FAULT : LONGEST_FAULT) * leaseMs;
    const target = random.integer(0, (isServers ? servers : processes) - 1);
    const choice = random.integer(0, 11);
    const freeAt = isServers ? serversFreeAt : (processFreeAt[target] ?? 0);
    if (atMs < freeAt) continue;
    if (isServers) serversFreeAt = atMs + forMs;
    else processFreeAt[target] = atMs + forMs;
    faults.push({ kind, atMs, forMs, target, choice });
  }
  return faults;
}

export function strikesServer(kind: FaultKind): boolean {
  return kind === "server frozen" || kind === "server restarted" || kind === "replica promoted";
}

/** Reads a list such as `process killed,clock stepped`. */
export function parseKinds(text: string): readonly FaultKind[] {
  const names = text.split(",").map((name) => name.trim());
  const unknown = names.filter((name) => !FAULT_KINDS.includes(name as FaultKind));
  if (unknown.length > 0)
    throw new RangeError(`--faults must be of ${FAULT_KINDS.join(", ")}; got ${unknown.join(", ")}`);
  return names as FaultKind[];
}
