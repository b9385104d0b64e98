/** A process of a run: holds locks or works on jobs until the process is killed, and obeys the orders of faults. */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { machineMs } from "../../support/src/clock.ts";
import { EventFile } from "../events.ts";
import { Store } from "../store.ts";
import { loadSystem } from "../systems/index.ts";
import { type JobData, type LockSystem, type Turn, TurnLostError } from "../systems/system.ts";
import { type Order, type ProcessArguments, READY } from "./arguments.ts";

const args = JSON.parse(process.argv[2] ?? "{}") as ProcessArguments;
const { name, leaseMs, keys } = args;
const events = new EventFile(args.eventFile);
const store = new Store(args.storePath);

const RealDate = Date;
let clockOffMs = 0;
globalThis.Date = class extends RealDate {
  constructor(...parts: readonly unknown[]) {
    super(...((parts.length === 0 ? [RealDate.now() + clockOffMs] : parts) as [number]));
  }

  static override now(): number {
    return RealDate.now() + clockOffMs;
  }
} as DateConstructor;

process.on("message", (order: Order) => {
  if ("blockMs" in order) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, order.blockMs);
  else clockOffMs = order.clockOffMs;
});
for (const event of ["unhandledRejection", "uncaughtException"] as const) {
  process.on(event, (error: unknown) =>
    events.append({ kind: "uncaught", who: name, message: String(error), atMs: machineMs() }),
  );
}

/** Draws the number of steps of a turn. One turn in ten is long enough to need an extension of a short lease. */
function stepsOfTurn(): number {
  return Math.random() < 0.1 ? 16 : 2;
}

async function work(key: string, job: number | undefined, turn: Turn): Promise<void> {
  const id = randomUUID();
  events.append({ kind: "granted", who: name, turn: id, key, job, atMs: machineMs() });
  const confirm = async (): Promise<void> => {
    const atMs = machineMs();
    if (!(await turn.isHeld())) throw new TurnLostError(`${key} is lost`);
    events.append({ kind: "confirmed", turn: id, atMs });
  };
  try {
    await confirm();
    const read = await store.read(key, turn.fencingToken);
    if (read === undefined) throw new TurnLostError(`${key} was claimed by a later holder`);
    for (let step = stepsOfTurn(); step > 0; step -= 1) {
      await delay(Math.random() * 0.12 * Math.min(leaseMs, 1_500));
      await confirm();
    }
    const isAccepted = await store.write({ kind: "written", turn: id, key, job, read }, turn.fencingToken);
    if (!isAccepted) throw new TurnLostError(`${key} was claimed by a later holder`);
  } finally {
    events.append({ kind: "ended", turn: id, atMs: machineMs() });
  }
}

/** Starts the worker again if it cannot reach its server, as the supervisor of a process would. */
async function startWorker(start: () => Promise<void> | void): Promise<void> {
  for (;;) {
    try {
      return await start();
    } catch {
      await delay(100);
    }
  }
}

/** Wants the lock at all times, as every process does. A lock that is lost or comes too late is a normal answer. */
async function holdForever(hold: ReturnType<LockSystem["open"]>, key: string): Promise<void> {
  for (;;) {
    await hold(key, (turn) => work(key, undefined, turn)).catch(() => undefined);
    await delay(Math.random() * 0.02 * leaseMs);
  }
}

const system = await loadSystem[args.system]();
if (system.kind === "queue") {
  const [server] = args.servers;
  if (server === undefined) throw new TypeError("a queue needs a server");
  const run = ({ key, job }: JobData, turn: Turn): Promise<void> => work(key, job, turn);
  await startWorker(() => system.startWorker(server, leaseMs, run));
  process.send?.(READY);
} else {
  const hold = system.open(args.servers, leaseMs);
  process.send?.(READY);
  for (const key of keys) void holdForever(hold, key);
}
