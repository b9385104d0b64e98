/** `CLOCK_MONOTONIC` in milliseconds, the same for every process of the machine. */
export function machineMs(): number {
  return Number(process.hrtime.bigint() / 1_000n) / 1_000;
}
