/** What semaphores and both sides of a read-write lock have in common: to acquire, to try, to use. */
import { type Lock, LockHeldError } from "@x/redlock-core";
import type { PermitRequest, Pool } from "./permits/pool.ts";

/** Acquires without waiting; null if it was refused. */
export async function attempt(pool: Pool, request: PermitRequest): Promise<Lock | null> {
  try {
    return await pool.acquire(request);
  } catch (error) {
    if (error instanceof LockHeldError && error !== request.signal?.reason) return null;
    throw error;
  }
}

/** Acquires, calls `routine`, and releases whatever happens. */
export async function use<Result>(
  pool: Pool,
  request: PermitRequest,
  routine: (lock: Lock) => Result | PromiseLike<Result>,
): Promise<Result> {
  const lock = await pool.acquire({ ...request, autoExtend: true });
  try {
    return await routine(lock);
  } finally {
    await lock.release();
  }
}
