export type { Access } from "./access.ts";
export { CountDownLatch } from "./count-down-latch.ts";
export { LatchClosedError, LatchError, type LatchErrorCode, LatchNotSetError } from "./errors.ts";
export type {
  AccessOptions,
  LatchOptions,
  LeaseOptions,
  PermitOptions,
  SemaphoreOptions,
  WaitOptions,
} from "./options.ts";
export type { SemaphoreTraces } from "./permits/acquisition.ts";
export { ReadWriteLock, type ReadWriteLockState } from "./read-write-lock.ts";
export { Semaphore, type SemaphoreState } from "./semaphore.ts";
