import { readFileSync } from "node:fs";

/** Returns the milliseconds of user and system time that this process took since `before`, a `process.cpuUsage()`. */
export function cpuMsSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}

/**
 * Returns the milliseconds of CPU time that the main thread of this process has used. The other threads of the process
 * are V8's: its compiler and its garbage collector. If the system does not report the time of a thread, returns the
 * time of all threads.
 */
export function mainThreadCpuMs(): number {
  try {
    const [ns] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ");
    return Number(ns) / 1_000_000;
  } catch {
    return cpuMsSince({ user: 0, system: 0 });
  }
}
