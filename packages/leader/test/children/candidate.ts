/** A candidate in its own process: campaigns forever and reports each term to its parent. Argument: JSON of `CandidateArgs`. */
import { BroadcastChannel } from "node:worker_threads";
import { LeaderElection, type LeaderTerm } from "@x/leader";
import { QuorumUnreachableError, Redlock } from "@x/redlock-core";
import type { CandidateArgs, CandidateMessage, CandidateOrder } from "../support/candidate.ts";

const args = JSON.parse(process.argv[2] ?? "{}") as CandidateArgs;
const tell = (message: CandidateMessage): void => void process.send?.(message);

const redlock = new Redlock(
  args.paths.map((path) => ({ path })),
  { ttl: args.maxTtl, maxTtl: args.maxTtl, nodeTimeout: 300, quarantine: args.quarantine ?? false },
);
const election = new LeaderElection(redlock, {
  name: args.name,
  id: args.id,
  leaseDuration: args.leaseDuration,
  renewDeadline: args.renewDeadline,
  retryPeriod: args.retryPeriod,
  cooldown: { initial: 50 },
  ...(args.worker === undefined ? {} : { renewal: { worker: args.worker } }),
});
let current: LeaderTerm | undefined;
election.on("error", (error) => {
  process.stderr.write(`${String(error)}\n`);
  const { message } = error as Error;
  tell({ type: "error", message, lastError: election.health().lastError?.message });
});
election.on("elected", (term) => tell({ type: "elected", term: term.term, at: Date.now() }));
election.on("renewFailed", ({ error }) => {
  const { code } = error as { code?: unknown };
  tell({ type: "renewFailed", isUnreachable: error instanceof QuorumUnreachableError, code });
});
const ended = new Promise<void>((resolve) => {
  election.on("ended", ({ term, reason }) => {
    tell({ type: "ended", term, reason, at: Date.now() });
    resolve();
  });
});

election.on("quarantined", ({ quarantineLeftMs }) => tell({ type: "quarantined", quarantineLeftMs }));

process.once("SIGTERM", () => void election.stop());
const running = election.run(async (term) => {
  current = term;
  const timer = setInterval(() => {
    // Before the question, because the process may be frozen in between.
    const at = Date.now();
    if (term.isCurrent()) tell({ type: "worked", term: term.term, at });
    else clearInterval(timer);
  }, args.workEveryMs ?? 20);
  await new Promise((resolve) => {
    if (args.isStubborn !== true) term.signal.addEventListener("abort", resolve, { once: true });
  });
  clearInterval(timer);
  current = undefined;
});

process.on("message", (order: CandidateOrder) => {
  if (order.type === "block") {
    // In the meantime no timer runs and no answer is read, as in a loop that computes, but other processes have the
    // processor.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, order.ms);
    tell({ type: "unblocked", isCurrent: current?.isCurrent() ?? false, at: Date.now() });
  } else if (order.type === "closeRedlock") void redlock.close();
  else if (order.type === "hangThread") {
    const hang = new BroadcastChannel("hang");
    hang.postMessage("now");
    hang.close();
  } else void election.stop(order.drainTimeout === undefined ? {} : { drainTimeout: order.drainTimeout });
});
tell({ type: "ready" });
await running.catch((error: unknown) => tell({ type: "failed", code: (error as { code?: unknown }).code }));
await redlock.close();
tell({ type: "done", at: Date.now() });
if (args.isStubborn === true) await ended;
process.disconnect();
