export { type UntilOptions, VirtualClock, type VirtualClockOptions } from "./clock.ts";
export { type LockCheck, LockViolationError } from "./lock-check.ts";
export { type MemoryNode, type MemoryNodesOptions, memoryNodes } from "./nodes.ts";
export type { VirtualProcess } from "./process.ts";
