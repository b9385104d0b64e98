/**
 * This file is the entry of the renewal thread. It acquires the lock and renews it, also while the event loop of the
 * process is blocked. It does so for no longer than `maxBlock`, so that a process which hangs for ever does not lead
 * for ever.
 */
import { parentPort, workerData } from "node:worker_threads";
import { type Lock, LockHeldError, systemClock } from "@x/redlock-core";
import { type PlacedOptions, protocolOf, readClock } from "@x/redlock-core/protocol";
import { firstAttempt, keepRenewed, oneAttempt, type RenewalListener } from "../lease.ts";
import { failureOf } from "./failure.ts";
import { loadRedlock } from "./load.ts";
import { beatPeriodMs, type Command, type Report, SharedState, type ThreadData, type Wait } from "./shared.ts";

const data = workerData as ThreadData;
const shared = new SharedState(data.memory);
const tell = (report: Report): void => parentPort?.postMessage(report);

const redlock = await loadRedlock(data.redlock);

interface Acquisition {
  readonly id: number;
  readonly cancel: AbortController;
  lock: Lock | undefined;
  isKept: boolean;
}

let current: Acquisition | undefined;
/**
 * From this thread's clocks to the event loop's, which have other starts. They are too small by the message's way, so
 * what is converted looks older.
 */
let toLoop = { monotonicMs: 0, suspendedMs: 0 };
let beats = shared.beats;
let beatSeenMs = systemClock.monotonicMs();

function watchBeats(): void {
  if (shared.beats !== beats) {
    beats = shared.beats;
    beatSeenMs = systemClock.monotonicMs();
  }
  systemClock.schedule(beatPeriodMs(data.maxBlock), watchBeats, { keepAlive: true });
}

function isBlocked(): boolean {
  return shared.beats === beats && systemClock.monotonicMs() - beatSeenMs > data.maxBlock;
}

async function acquire(id: number, wait: Wait | undefined): Promise<void> {
  const own: Acquisition = { id, cancel: new AbortController(), lock: undefined, isKept: false };
  current = own;
  const maxHold = Number.POSITIVE_INFINITY;
  const options = { ttl: data.leaseDuration, autoExtend: false, maxHold, signal: own.cancel.signal };
  try {
    const lock = await (wait === undefined
      ? oneAttempt(redlock, data.resource, options, data.note)
      : waitFor(wait, options));
    if (lock === null) tell({ type: "held", id });
    else if (current !== own) await lock.release();
    else hold(own, lock);
  } catch (error) {
    tell(error instanceof LockHeldError ? { type: "held", id } : { type: "failed", id, failure: failureOf(error) });
  }
}

async function waitFor({ askedMs, isFirst, timeout }: Wait, options: PlacedOptions): Promise<Lock> {
  const free = isFirst ? await firstAttempt(redlock, data.resource, options, data.note) : null;
  if (free !== null) return free;
  const order = protocolOf(redlock).orderAt(askedMs);
  return await protocolOf(redlock).acquire(data.resource, { ...options, timeout, order }, data.note);
}

function hold(own: Acquisition, lock: Lock): void {
  share(lock);
  own.lock = lock;
  own.isKept = true;
  beatSeenMs = systemClock.monotonicMs();
  tell({ type: "granted", id: own.id, fencingToken: lock.fencingToken, token: lock.token });
  const listener: RenewalListener = {
    renewed: (tookMs) => {
      share(lock);
      tell({ type: "renewed", id: own.id, tookMs });
    },
    failed: (error) => tell({ type: "renewFailed", id: own.id, failure: failureOf(error) }),
    lost: () => {
      if (own.isKept) tell({ type: "lost", id: own.id });
    },
  };
  keepRenewed(lock, data.retryPeriod, listener, isBlocked);
}

function share(lock: Lock): void {
  const { monotonicMs, wallMs, suspendedMs } = protocolOf(lock).start;
  shared.start = {
    monotonicMs: monotonicMs + toLoop.monotonicMs,
    wallMs,
    suspendedMs: suspendedMs + toLoop.suspendedMs,
  };
}

function leave(acquisition: Acquisition): void {
  acquisition.isKept = false;
  if (acquisition.lock !== undefined) protocolOf(acquisition.lock).leave();
}

async function release(id: number): Promise<void> {
  if (current?.id !== id || current.lock === undefined) {
    tell({ type: "released", id, confirmed: false });
    return;
  }
  current.isKept = false;
  tell({ type: "released", id, confirmed: await current.lock.release() });
}

function obey(command: Command): void {
  switch (command.type) {
    case "acquire": {
      const now = readClock(protocolOf(redlock).clock);
      toLoop = {
        monotonicMs: command.now.monotonicMs - now.monotonicMs,
        suspendedMs: command.now.suspendedMs - now.suspendedMs,
      };
      void acquire(command.id, command.wait);
      break;
    }
    case "cancel":
      if (current?.id === command.id) {
        current.cancel.abort();
        void release(command.id);
        current = undefined;
      }
      break;
    case "leave":
      if (current?.id === command.id) leave(current);
      break;
    case "release":
      void release(command.id);
      break;
    case "close":
      void redlock.close().finally(() => process.exit());
      break;
  }
}

watchBeats();
redlock.on("wait", ({ resources, votes }) => {
  if (current !== undefined && resources[0] === data.resource) tell({ type: "refused", id: current.id, votes });
});
parentPort?.on("message", (command: Command) => obey(command));
tell({ type: "ready", id: 0 });
