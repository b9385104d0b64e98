import { createHook } from "node:async_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { runningProcesses } from "./processes.ts";

const settleTimeoutMs = 3_000;

const origins = new Map<number, { readonly timer: NodeJS.Timeout; readonly origin: Error }>();

/** Lets timers remember from now on where they were set, for the message of a leak. This makes every promise slower. */
export function rememberTimerOrigins(): void {
  Error.stackTraceLimit = 30;
  createHook({
    init: (id, type, _trigger, timer) => {
      if (type === "Timeout") origins.set(id, { timer: timer as NodeJS.Timeout, origin: new Error("a timer, set") });
    },
    destroy: (id) => origins.delete(id),
  }).enable();
}

/**
 * Remembers the open sockets, listeners, child processes and Redis servers. Returns a check that everything opened
 * since then is closed again, and that no timer keeps the process alive. The check waits up to 3 s for ends that are
 * under way.
 */
export function watchForLeaks(): () => Promise<void> {
  const before = openResources();
  return async () => {
    const deadlineMs = performance.now() + settleTimeoutMs;
    for (;;) {
      const leaks = added(before, openResources());
      if (leaks.length === 0) return;
      if (performance.now() > deadlineMs) throw new Error(`left open: ${leaks.join(", ")}${timerOrigins()}`);
      await delay(20);
    }
  };
}

// Resources that the test runner and Node.js open and close themselves at any time.
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

// Timers count from zero: the test runner's own timers come and go within 100 ms, and such a timer in `before` would
// hide a leak.
function added(before: ReadonlyMap<string, number>, now: ReadonlyMap<string, number>): string[] {
  return [...now].flatMap(([name, count]) => {
    const more = name === "Timeout" ? count : count - (before.get(name) ?? 0);
    return more > 0 ? [`${more} ${name}`] : [];
  });
}

/** Returns where the timers were set that keep the process alive. The last timer belongs to the check. */
function timerOrigins(): string {
  const live = [...origins.values()].filter(({ timer }) => timer.hasRef());
  return live.map(({ origin }) => `\n${(origin.stack ?? "").replaceAll(/^.*\(node:internal\/.*\n/gm, "")}`).join("");
}
