import { setTimeout as delay } from "node:timers/promises";
import { runningProcesses } from "./processes.ts";

const settleTimeoutMs = 3_000;

/**
 * Remembers what is open now (sockets, listeners, child processes, Redis servers) and returns a check that what was opened
 * since is closed again, and that no timer keeps the process alive. It waits up to 3 s for ends that are under way.
 */
export function watchForLeaks(): () => Promise<void> {
  const before = openResources();
  return async () => {
    const deadlineMs = performance.now() + settleTimeoutMs;
    for (;;) {
      const leaks = added(before, openResources());
      if (leaks.length === 0) return;
      if (performance.now() > deadlineMs) throw new Error(`left open: ${leaks.join(", ")}`);
      await delay(20);
    }
  };
}

// What the test runner and Node open and close by themselves at any time.
const notOurs = new Set([
  "CloseReq",
  "FSReqCallback",
  "FSReqPromise",
  "GetAddrInfoReqWrap",
  "Immediate",
  "MessagePort",
  "TTYWrap",
  "PipeWrap",
]);

function openResources(): Map<string, number> {
  const counts = new Map<string, number>();
  const names: string[] = [
    ...process.getActiveResourcesInfo().filter((name) => !notOurs.has(name)),
    ...runningProcesses(),
  ];
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

// Timers count from zero: the test runner's own come and go within 100 ms, and one of them in `before` would hide one of ours.
function added(before: ReadonlyMap<string, number>, now: ReadonlyMap<string, number>): string[] {
  return [...now].flatMap(([name, count]) => {
    const more = name === "Timeout" ? count : count - (before.get(name) ?? 0);
    return more > 0 ? [`${more} ${name}`] : [];
  });
}
