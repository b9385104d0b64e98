/**
 * Entry of the renewal thread. The thread acquires the lock and renews it, even while the event loop of the process is
 * blocked. After a block of `maxBlock` the thread stops renewing, so that a process that hangs forever does not lead
 * forever.
 */
import { parentPort, workerData } from "node:worker_threads";
import { type Redlock, systemClock, type Vote } from "@x/redlock-core";
import { kindOf, messageOf, readClock, whenAborted } from "@x/redlock-core/kit";
import { everyPeriod, protocolOf, redlock as REDLOCK } from "@x/redlock-core/protocol";
import { localLeases, type TermLease } from "../lease.ts";
import { beatPeriodMs, failureOf, type Report, SharedMemory, type ThreadCommand, type ThreadData } from "./shared.ts";

/** The most characters of a URL in a message. A `data:` URL may be long. */
const LONGEST_URL = 1_000;

const data = workerData as ThreadData;
const shared = new SharedMemory(data.memory);
const tell = (report: Report): void => parentPort?.postMessage(report);

const redlock = await loadRedlock(data.redlock);
const leases = localLeases(redlock, data);

interface Acquisition {
  readonly id: number;
  readonly cancel: AbortController;
  lease: TermLease | undefined;
}

let current: Acquisition | undefined;
/**
 * Differences between the event loop's clocks and this thread's clocks. The differences are too small by the message's
 * travel time, so converted readings look older than they are.
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

async function acquire(id: number, isToWait: boolean): Promise<void> {
  const own: Acquisition = { id, cancel: new AbortController(), lease: undefined };
  current = own;
  try {
    const refused = isToWait ? (votes: readonly Vote[]) => tell({ type: "refused", id, votes }) : undefined;
    const lease = await leases.acquire(own.cancel.signal, refused);
    if (lease === undefined) tell({ type: "held", id });
    else if (current !== own) await lease.release();
    else hold(own, lease);
  } catch (error) {
    tell({ type: "failed", id, failure: failureOf(error) });
  }
}

function hold(own: Acquisition, lease: TermLease): void {
  const { id } = own;
  const { signal } = lease;
  share(lease);
  own.lease = lease;
  beatSeenMs = systemClock.monotonicMs();
  tell({ type: "granted", id, fencingToken: lease.fencingToken, token: lease.token });
  lease.keep({
    ...everyPeriod(data.retryPeriod),
    isPaused: isBlocked,
    onRenewed: (tookMs) => {
      share(lease);
      tell({ type: "renewed", id, tookMs });
    },
    onFailed: (error) => tell({ type: "renewFailed", id, failure: failureOf(error) }),
  });
  whenAborted(signal, () => tell({ type: "lost", id, failure: failureOf(signal.reason) }));
}

function share({ start }: TermLease): void {
  shared.start = {
    monotonicMs: start.monotonicMs + toLoop.monotonicMs,
    wallMs: start.wallMs,
    suspendedMs: start.suspendedMs + toLoop.suspendedMs,
  };
}

async function release(id: number): Promise<void> {
  const lease = current?.id === id ? current.lease : undefined;
  tell({ type: "released", id, confirmed: (await lease?.release()) ?? false });
}

function obey(command: ThreadCommand): void {
  switch (command.type) {
    case "acquire": {
      const now = readClock(protocolOf(redlock).clock);
      toLoop = {
        monotonicMs: command.now.monotonicMs - now.monotonicMs,
        suspendedMs: command.now.suspendedMs - now.suspendedMs,
      };
      void acquire(command.id, command.isToWait);
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
      if (current?.id === command.id) current.lease?.leave();
      break;
    case "release":
      void release(command.id);
      break;
    case "close":
      void redlock.close().finally(() => process.exit());
      break;
  }
}

/**
 * @throws Error, TypeError naming option, rule, URL and the module's result. An error of the module is the `cause`
 */
async function loadRedlock(url: string): Promise<Redlock> {
  const rule = `renewal.worker.redlock must be the URL of a module whose default export makes a Redlock (of @x/redlock-core), got ${JSON.stringify(url.slice(0, LONGEST_URL))}`;
  let make: unknown;
  let made: unknown;
  try {
    ({ default: make } = (await import(url)) as { readonly default?: unknown });
    if (typeof make === "function") made = await make();
  } catch (error) {
    const reason = messageOf(error);
    throw new Error(`${rule}, which failed: ${reason}`, { cause: error });
  }
  if (REDLOCK.accepts(made)) return made;
  const found = typeof make === "function" ? `made ${kindOf(made)}` : `is ${kindOf(make)}`;
  throw new TypeError(`${rule}, whose default export ${found}`);
}

watchBeats();
parentPort?.on("message", (command: ThreadCommand) => obey(command));
tell({ type: "ready", id: 0 });
