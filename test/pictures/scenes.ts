/** The scenes of the pictures, played in virtual time with the real code. No part of a picture is drawn by hand. */
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { healthHandler, LeaderElection } from "@x/leader";
import { type Lock, Redlock, type RedlockOptions } from "@x/redlock-core";
import { type MemoryNode, memoryNodes, VirtualClock, type VirtualProcess } from "@x/testing";
import type { Bar, Mark, Timeline } from "./timeline.ts";

class Stage {
  readonly clock: VirtualClock = new VirtualClock();
  readonly nodes: readonly MemoryNode[];
  readonly bars: Bar[] = [];
  readonly marks: Mark[] = [];

  constructor(count = 3) {
    this.nodes = memoryNodes(count, { clock: this.clock, latency: 1 });
  }

  process(
    name: string,
    options: RedlockOptions = {},
  ): {
    readonly process: VirtualProcess;
    readonly redlock: Redlock;
    readonly nodes: readonly MemoryNode[];
  } {
    const process = this.clock.process(name);
    const nodes = memoryNodes(this.nodes, { clock: process, latency: 1 });
    let count = 0;
    const random = {
      token: () => `${name}${String(++count)}`.replaceAll(/\W/g, "").padStart(40, "0"),
      fraction: () => 0.5,
    };
    const redlock = new Redlock(nodes, { clock: process, ttl: 10_000, maxTtl: 15_000, random, ...options });
    return { process, nodes, redlock };
  }

  mark(who: string, text: string, atMs: number = this.clock.elapsedMs): void {
    this.marks.push({ who, text, atMs });
  }

  /** Lets time pass until `isTrue`, a hundredth of a second at a time, and returns the time. */
  async when(isTrue: () => boolean): Promise<number> {
    for (let ms = 0; ms < 60_000; ms += 10) {
      if (isTrue()) return this.clock.elapsedMs;
      await this.clock.advance(10);
    }
    throw new Error("what the picture waits for does not come");
  }
}

/** A leader that dies, and a leader that is asked to stop: shows how long nobody leads. */
export async function failover(): Promise<Timeline> {
  const stage = new Stage();
  const [a, b, c] = ["replica A", "replica B", "replica C"].map((name) => {
    const { process, redlock } = stage.process(name);
    return { name, process, election: new LeaderElection(redlock, { name: "reports", id: name }) };
  });
  if (a === undefined || b === undefined || c === undefined) throw new Error("three replicas");
  const lead = (name: string, fromMs: number, toMs: number): void => {
    stage.bars.push({ who: name, fromMs, toMs, text: "leads", kind: "held" });
  };
  await stage.clock.advance(1_000);
  await stage.clock.until(a.election.campaign());
  const firstMs = stage.clock.elapsedMs;
  const campaigns = [b.election.campaign()];
  await stage.clock.advance(9_000);
  a.process.kill();
  const diedMs = stage.clock.elapsedMs;
  lead(a.name, firstMs, diedMs);
  stage.mark(a.name, "its process is killed");
  const second = await stage.clock.until(campaigns[0] ?? Promise.reject(new Error("no campaign")));
  const secondMs = stage.clock.elapsedMs;
  stage.bars.push({
    who: a.name,
    fromMs: diedMs,
    toMs: secondMs,
    text: "its lease runs out",
    kind: "doubtful",
  });
  stage.mark(b.name, `leads ${((secondMs - diedMs) / 1_000).toFixed(1)} s later`);
  const last = c.election.campaign();
  await stage.clock.advance(14_000);
  stage.mark(b.name, "SIGTERM: resigns");
  const stoppedMs = stage.clock.elapsedMs;
  const stopped = second.resign();
  await stage.clock.until(last);
  lead(b.name, secondMs, stoppedMs);
  stage.mark(c.name, `leads ${stage.clock.elapsedMs - stoppedMs} ms later`);
  const thirdMs = stage.clock.elapsedMs;
  await stage.clock.until(stopped);
  await stage.clock.advance(9_000);
  lead(c.name, thirdMs, stage.clock.elapsedMs);
  return {
    title: "A leader that crashes, and one that is stopped: leaseDuration 15 s",
    endMs: Math.ceil(stage.clock.elapsedMs / 1_000) * 1_000,
    participants: [a.name, b.name, c.name],
    bars: stage.bars,
    marks: stage.marks,
  };
}

/** A holder that two of three nodes no longer answer, and the next holder. */
export async function loss(): Promise<Timeline> {
  const stage = new Stage();
  const holder = stage.process("holder");
  const next = stage.process("next");
  await stage.clock.advance(500);
  holder.redlock.on("extended", () => stage.mark("holder", "extended"));
  holder.redlock.on("extendFailed", () => stage.mark("holder", "not extended"));
  const lock = await stage.clock.until(holder.redlock.acquire("account:42", { autoExtend: true }));
  const { signal } = lock;
  const heldMs = stage.clock.elapsedMs;
  await stage.clock.advance(7_500);
  const cutMs = stage.clock.elapsedMs;
  for (const node of holder.nodes.slice(0, 2)) node.partition(30_000);
  const waiting: Promise<Lock> = next.redlock.acquire("account:42", { timeout: 60_000 });
  const lostMs = await stage.when(() => signal.aborted);
  const theirs = await stage.clock.until(waiting);
  const nextMs = stage.clock.elapsedMs;
  await stage.clock.advance(3_000);
  const failed = stage.marks.filter(({ text }) => text === "not extended");
  const shown = stage.marks.filter((mark) => mark.text === "extended" || mark === failed[0]);
  const endMs = Math.ceil(stage.clock.elapsedMs / 1_000) * 1_000;
  return {
    title: "A lock is lost: its holder knows before anybody else gets it (ttl 10 s)",
    endMs,
    participants: ["nodes 1, 2", "holder", "next"],
    bars: [
      { who: "nodes 1, 2", fromMs: cutMs, toMs: endMs, text: "cut off from the holder", kind: "fault" },
      { who: "holder", fromMs: heldMs, toMs: lostMs, text: "holds", kind: "held" },
      { who: "holder", fromMs: lostMs, toMs: nextMs, text: "", kind: "doubtful" },
      { who: "next", fromMs: cutMs, toMs: nextMs, text: "waits in line", kind: "doubtful" },
      {
        who: "next",
        fromMs: nextMs,
        toMs: endMs,
        text: theirs.fencingToken > lock.fencingToken ? "holds, greater token" : "?",
        kind: "held",
      },
    ],
    marks: [...shown, { who: "holder", atMs: lostMs, text: "signal aborts" }],
  };
}

/** One managed Redis, whose replica is promoted without the lock that A holds and B waits for. */
async function promoted(quarantine: boolean, title: string): Promise<Timeline> {
  const stage = new Stage(1);
  const options = { quarantine, maxTtl: 10_000 };
  const [a, b] = [stage.process("A", options), stage.process("B", options)];
  /** The store that the lock protects accepts no write with a token other than the greatest claimed token. */
  let claimed = 0;
  const write = (name: string, { fencingToken }: Lock): void => {
    claimed = Math.max(claimed, fencingToken);
    stage.mark("store", fencingToken === claimed ? `takes ${name}'s write` : `refuses ${name}'s`);
  };
  await stage.clock.advance(500);
  const first = await stage.clock.until(a.redlock.acquire("account:42", { autoExtend: true }));
  const { signal } = first;
  const firstMs = stage.clock.elapsedMs;
  await stage.clock.advance(2_500);
  const waitingMs = stage.clock.elapsedMs;
  const waiting = b.redlock.acquire("account:42", { timeout: 60_000, autoExtend: true });
  const writing = waiting.then(async (lock) => {
    const grantedMs = stage.clock.elapsedMs;
    await stage.clock.sleep(500);
    write("B", lock);
    return { lock, grantedMs };
  });
  await stage.clock.advance(1_000);
  write("A", first);
  await stage.clock.advance(3_500);
  const failedMs = stage.clock.elapsedMs;
  for (const node of stage.nodes) node.restart({ empty: true });
  stage.mark("Redis", "failover");
  await stage.clock.advance(2_600);
  if (!signal.aborted) write("A", first);
  const lostMs = await stage.when(() => signal.aborted);
  stage.mark("A", "signal aborts");
  const { lock: second, grantedMs: secondMs } = await stage.clock.until(writing);
  const endMs = Math.ceil(stage.clock.elapsedMs / 1_000 + 3.5) * 1_000;
  const greater = second.fencingToken > first.fencingToken ? "holds, greater token" : "?";
  const shown: readonly Bar[] = [
    { who: "Redis", fromMs: firstMs, toMs: failedMs, text: "knows A's lock", kind: "held" },
    ...(quarantine
      ? ([
          {
            who: "Redis",
            fromMs: failedMs,
            toMs: secondMs,
            text: "promoted: in quarantine, grants nothing",
            kind: "fault",
          },
          { who: "Redis", fromMs: secondMs, toMs: endMs, text: "grants", kind: "held" },
        ] as const)
      : ([{ who: "Redis", fromMs: failedMs, toMs: endMs, text: "promoted without A's lock", kind: "fault" }] as const)),
    { who: "A", fromMs: firstMs, toMs: Math.min(lostMs, secondMs), text: "holds", kind: "held" },
    { who: "A", fromMs: secondMs, toMs: lostMs, text: "believes that it holds", kind: "fault" },
    { who: "B", fromMs: waitingMs, toMs: secondMs, text: "waits in line", kind: "doubtful" },
    { who: "B", fromMs: secondMs, toMs: endMs, text: greater, kind: "held" },
  ];
  return {
    title,
    endMs,
    participants: ["Redis", "A", "B", "store"],
    bars: shown.filter(({ fromMs, toMs }) => fromMs < toMs),
    marks: stage.marks,
  };
}

export const twoHolders = (): Promise<Timeline> =>
  promoted(false, "A failover loses a lock: two believe in it, and the store the writes of one (ttl 10 s)");

export const quarantined = (): Promise<Timeline> =>
  promoted(true, "The same failover with quarantine: B waits until A cannot believe in the lock (ttl, maxTtl 10 s)");

const STATES: Readonly<Record<string, string>> = { leader: "leads", draining: "its task ends", follower: "stands by" };
/** Interval between two probes of a replica. */
const PROBE_MS = 100;

/**
 * The answers of two replicas to probes while one replica leads, Redis is lost and returns, a task overruns, and a
 * replica is stopped.
 */
export async function health(): Promise<Timeline> {
  const stage = new Stage();
  const replicas = ["replica A", "replica B"].map((name) => {
    const { nodes, redlock } = stage.process(name);
    const options = { name: "reports", id: name, leaseDuration: 5_000 };
    const election = new LeaderElection(redlock, options);
    return { name, nodes, election, handler: healthHandler({ elections: [election] }) };
  });
  const [a, b] = replicas;
  if (a === undefined || b === undefined) throw new Error("two replicas");
  const rows = ["", " /livez", " /readyz"] as const;
  const last = new Map<string, Bar>();
  const show = (who: string, text: string, kind: Bar["kind"]): void => {
    const before = last.get(who);
    const fromMs = stage.clock.elapsedMs;
    if (before?.text === text) last.set(who, { ...before, toMs: fromMs + PROBE_MS });
    else {
      if (before !== undefined) stage.bars.push(before);
      last.set(who, { who, text, kind, fromMs, toMs: fromMs + PROBE_MS });
    }
  };
  /** Lets time pass, and probes each replica at regular intervals. */
  const probed = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= PROBE_MS) {
      for (const { name, election, handler } of replicas) {
        const { state, overrunMs } = election.health();
        if (overrunMs > 0) show(name, "overruns", "fault");
        else show(name, STATES[state] ?? "", state === "leader" ? "held" : "doubtful");
        for (const path of ["/livez", "/readyz"]) {
          const status = statusOf(handler, path);
          show(`${name} ${path}`, String(status), status === 200 ? "held" : "fault");
        }
      }
      await stage.clock.advance(PROBE_MS);
    }
  };

  /** The task of the first term that begins now overruns its lease by this time. */
  let overrunMs = 0;
  const start = ({ name, election }: (typeof replicas)[number]): Promise<void> => {
    stage.mark(name, "starts");
    return election.run(async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      await new Promise<void>((resolve) => void stage.clock.schedule(overrunMs, () => resolve()));
    });
  };
  await probed(2_000);
  const runs = [start(a)];
  await probed(2_000);
  runs.push(start(b));
  await probed(5_000);
  const lostMs = stage.clock.elapsedMs;
  for (const node of replicas.flatMap(({ nodes }) => nodes)) node.partition(9_000);
  stage.bars.push({ who: "Redis", fromMs: lostMs, toMs: lostMs + 9_000, text: "does not answer", kind: "fault" });
  await probed(17_000);
  const leading = replicas.find(({ election }) => election.isLeader());
  if (leading === undefined) throw new Error("nobody leads again");
  overrunMs = 4_000;
  stage.mark(leading.name, "its lock is taken away");
  await stage.clock.until(stage.process("operator").redlock.forceRelease("leader:reports"));
  await probed(8_000);
  overrunMs = 0;
  const stopping = replicas.find(({ election }) => !election.isLeader()) ?? a;
  stage.mark(stopping.name, "SIGTERM");
  const ends = [stopping.election.stop()];
  await probed(3_000);
  const endMs = stage.clock.elapsedMs;
  ends.push(...replicas.map(({ election }) => election.stop()));
  await stage.clock.until(Promise.all([...ends, ...runs]));
  return {
    title: "What healthHandler() answers to probes: leaseDuration 5 s",
    endMs,
    participants: ["Redis", ...replicas.flatMap(({ name }) => rows.map((row) => name + row))],
    bars: [...stage.bars, ...last.values()].filter(({ text }) => text !== ""),
    marks: stage.marks,
  };
}

/** Asks a handler as an HTTP server of Node.js does. */
function statusOf(handler: ReturnType<typeof healthHandler>, path: string): number {
  const request = new IncomingMessage(new Socket());
  request.method = "GET";
  request.url = path;
  const response = new ServerResponse(request);
  handler(request, response);
  return response.statusCode;
}
