/** The faults of a run: when each is due, and how it is done to the fleet. */
import { setTimeout as delay } from "node:timers/promises";
import type { RedisServer } from "@x/test-support";
import { openRuns } from "./checker.ts";
import type { Fleet, Role } from "./fleet.ts";
import type { HistoryEvent } from "./history.ts";
import { leaseMs } from "./settings.ts";

export type FaultKind = "kill lock node" | "restart lock node" | "kill leader" | "kill worker" | "freeze worker";

/** Each fault comes when this share of the flights is on a board. */
export const faultPlan: readonly { readonly share: number; readonly kind: FaultKind }[] = [
  { share: 0.1, kind: "kill lock node" },
  { share: 0.2, kind: "kill leader" },
  { share: 0.3, kind: "restart lock node" },
  { share: 0.4, kind: "kill worker" },
  { share: 0.55, kind: "freeze worker" },
];

/** What the faults are done to, and what is known about it. */
export interface Stage {
  readonly fleet: Fleet;
  readonly lockNodes: readonly RedisServer[];
  /** Share of the flights that are on a board, 0 to 1. */
  share(): number;
  leader(): Promise<string | undefined>;
  /** The store's clock, in ms. */
  nowMs(): Promise<number>;
  /** All events so far, and those of the next moment. */
  history(): Promise<readonly HistoryEvent[]>;
  /** Tells the audience. */
  tell(text: string): void;
}

/** A fault that was done; `target` is the process or node. */
export interface DoneFault {
  readonly kind: FaultKind;
  readonly target: string;
  readonly atMs: number;
}

const respawnAfterMs = 2_000;
const pollMs = 25;
// A lease, the job's lock and a check for stalled jobs have passed by then many times over.
const longestWaitMs = 30_000;

/** Does each fault of the plan when it is due. Rejects with the signal's reason when it is aborted. */
export async function runFaults(stage: Stage, signal: AbortSignal): Promise<DoneFault[]> {
  const done: DoneFault[] = [];
  const respawns: Promise<void>[] = [];
  let killedLeader: string | undefined;
  const respawn = (role: Role, name: string): void => {
    const respawning = delay(respawnAfterMs, undefined, { signal }).then(() => {
      stage.fleet.start(role, Number(name.slice(name.indexOf("-") + 1)));
      stage.tell(`${name} started again`);
    });
    // It is awaited at the end; when the run is aborted before, there is nobody to tell.
    void respawning.catch(() => {});
    respawns.push(respawning);
  };
  for (const { share, kind } of faultPlan) {
    while (stage.share() < share) await delay(pollMs, undefined, { signal });
    const fault = await doFault(stage, kind, signal);
    if (fault === undefined) continue;
    done.push(fault);
    if (kind === "kill leader") {
      respawn("scheduler", fault.target);
      killedLeader = fault.target;
    }
    if (kind === "kill worker") respawn("worker", fault.target);
  }
  await Promise.all(respawns);
  await takenOver(stage, killedLeader, signal);
  return done;
}

/** Waits for the next leader: a short run has nothing to do for it, and is over before. */
async function takenOver(stage: Stage, leader: string | undefined, signal: AbortSignal): Promise<void> {
  const startedMs = await stage.nowMs();
  while (leader !== undefined && (await stage.leader()) === leader) {
    if ((await stage.nowMs()) - startedMs > longestWaitMs) return;
    await delay(pollMs, undefined, { signal });
  }
}

async function doFault(stage: Stage, kind: FaultKind, signal: AbortSignal): Promise<DoneFault | undefined> {
  const atMs = await stage.nowMs();
  switch (kind) {
    case "kill lock node":
    case "restart lock node": {
      const number = 3;
      const node = stage.lockNodes[number - 1];
      if (node === undefined) return undefined;
      if (kind === "kill lock node") await node.kill();
      else await node.start();
      stage.tell(
        kind === "kill lock node"
          ? `lock node ${number} of ${stage.lockNodes.length} killed`
          : `lock node ${number} started again, empty`,
      );
      return { kind, target: `lock node ${number}`, atMs };
    }
    case "kill leader": {
      const leader = await stage.leader();
      if (leader === undefined) return undefined;
      await stage.fleet.kill(leader);
      stage.tell(`${leader}, the leader, killed`);
      return { kind, target: leader, atMs };
    }
    case "kill worker": {
      const worker = "worker-2";
      const killedAtMs = await freezeAtWork(stage, worker, signal);
      if (killedAtMs === undefined) return undefined;
      await stage.fleet.kill(worker);
      stage.tell(`${worker} killed`);
      return { kind, target: worker, atMs: killedAtMs };
    }
    case "freeze worker": {
      const worker = "worker-3";
      const frozenAtMs = await freezeAtWork(stage, worker, signal);
      if (frozenAtMs === undefined) return undefined;
      stage.tell(`${worker} frozen`);
      const isOvertaken = await overtaken(stage, worker, frozenAtMs, signal);
      stage.fleet.thaw(worker);
      const frozenMs = (await stage.nowMs()) - frozenAtMs;
      stage.tell(
        `${worker} resumed after ${(frozenMs / 1000).toFixed(1)} s${isOvertaken ? ", others have its airports" : ""}`,
      );
      return { kind, target: worker, atMs: frozenAtMs };
    }
  }
}

/** Freezes a worker between a read and a write; returns when, by the store's clock, or undefined when there is no work any more. */
async function freezeAtWork(stage: Stage, worker: string, signal: AbortSignal): Promise<number | undefined> {
  for (;;) {
    stage.fleet.freeze(worker);
    // It stands still by then, and two round trips later the store has done all that it had sent: what is open now stays open.
    await delay(pollMs, undefined, { signal });
    const history = await stage.history();
    const nowMs = await stage.nowMs();
    if (openRuns(history, worker, nowMs).length > 0) return nowMs;
    stage.fleet.thaw(worker);
    if (stage.share() === 1) return undefined;
    await delay(pollMs, undefined, { signal });
  }
}

/** Waits until the lease is over and other runs have read the boards on which the frozen worker was at work. */
async function overtaken(stage: Stage, worker: string, frozenAtMs: number, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    await delay(pollMs, undefined, { signal });
    const nowMs = await stage.nowMs();
    const history = await stage.history();
    const later = history.filter(
      (event) => event.kind === "begin" && event.atMs > frozenAtMs && event.worker !== worker,
    );
    const isOvertaken = openRuns(history, worker, frozenAtMs).every(({ origin }) =>
      later.some((event) => event.origin === origin),
    );
    if (isOvertaken && nowMs - frozenAtMs > 2 * leaseMs) return true;
    if (nowMs - frozenAtMs > longestWaitMs) return false;
  }
}
