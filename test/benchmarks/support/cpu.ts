/** Returns the milliseconds of user and system time that this process took since `before`, a `process.cpuUsage()`. */
export function cpuMsSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}
