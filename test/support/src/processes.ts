import type { ChildProcess } from "node:child_process";
import { unwatch, watch } from "./watchdog.ts";

/** The end of a process. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

const running = new Map<number, string>();

/** Follows a child that was just spawned: the child is listed while it runs, and killed when this process ends. */
export function follow(child: ChildProcess, name: string): Promise<Exit> {
  const { pid } = child;
  if (pid === undefined) {
    return new Promise((_resolve, reject) => {
      child.once("error", reject);
    });
  }
  watch(pid);
  running.set(pid, name);
  return new Promise((resolve) => {
    child.once("exit", (code, signal) => {
      running.delete(pid);
      unwatch(pid);
      resolve({ code, signal });
    });
  });
}

/** Returns the processes that were started with this package and have not ended, as `name (pid)`. */
export function runningProcesses(): string[] {
  return [...running].map(([pid, name]) => `${name} (${pid})`);
}
