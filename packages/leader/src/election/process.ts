/** An election asks of its process that it stays alive, and that it passes on its signals. */
import { constants } from "node:os";
import type { Clock } from "@x/redlock-core";
import { show } from "@x/redlock-core/protocol";

const HOUR_MS = 3_600_000;

/**
 * Keeps the process alive until the function that it returns is called. Nothing else does, neither the connections nor
 * any timer, and a replica that waits for its turn must not end for want of work.
 */
export function keepAlive(clock: Clock): () => void {
  let cancel: () => void = () => undefined;
  const arm = (): void => {
    cancel = clock.schedule(HOUR_MS, arm, { keepAlive: true });
  };
  arm();
  return () => cancel();
}

/** The system takes no listener for these signals. */
const UNCATCHABLE: readonly NodeJS.Signals[] = ["SIGKILL", "SIGSTOP"];

/** One listener per signal serves all elections, because Node takes more than ten for a leak. */
const wanted = new Map<NodeJS.Signals, { readonly runs: Set<() => void>; readonly listener: () => void }>();

/** Calls `run` when the process gets one of the signals, and returns a function that ends that. */
export function onProcessSignals(names: readonly NodeJS.Signals[], run: () => void): () => void {
  const unknown = names.find((name) => !(name in constants.signals));
  if (unknown !== undefined) throw new RangeError(`stopOn must name signals of this system, got ${show(unknown)}`);
  const uncatchable = names.find((name) => UNCATCHABLE.includes(name));
  if (uncatchable !== undefined)
    throw new RangeError(`stopOn must name signals that a process can catch, got "${uncatchable}"`);
  const own = (): void => run();
  const undo = (): void => {
    for (const name of names) remove(name, own);
  };
  try {
    for (const name of names) add(name, own);
  } catch (error) {
    undo();
    throw error;
  }
  return undo;
}

function add(name: NodeJS.Signals, run: () => void): void {
  const known = wanted.get(name);
  if (known !== undefined) {
    known.runs.add(run);
    return;
  }
  const runs = new Set([run]);
  const listener = (): void => {
    for (const each of [...runs]) each();
  };
  wanted.set(name, { runs, listener });
  process.on(name, listener);
}

function remove(name: NodeJS.Signals, run: () => void): void {
  const known = wanted.get(name);
  known?.runs.delete(run);
  if (known === undefined || known.runs.size > 0) return;
  wanted.delete(name);
  process.removeListener(name, known.listener);
}
