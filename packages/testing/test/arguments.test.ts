import { type MemoryNode, memoryNodes, VirtualClock } from "@x/testing";
import { expect, it } from "vitest";

const clock = new VirtualClock();
const [node] = memoryNodes(1, { clock });
const check = clock.checkLocks();
const wrong = (value: unknown): never => value as never;

it.each<[string, () => unknown, ErrorConstructor, string]>([
  ["startAt", () => new VirtualClock({ startAt: -1 }), RangeError, "startAt must be an integer >= 1000000000000"],
  ["an early startAt", () => new VirtualClock({ startAt: 1e12 - 1 }), RangeError, "startAt must be an integer >= 1000"],
  ["an option of the clock", () => new VirtualClock(wrong({ start: 1 })), TypeError, "unknown option"],
  ["a process's name", () => clock.process(""), RangeError, "name must be a non-empty string"],
  ["no nodes", () => memoryNodes(0, { clock }), RangeError, "nodes must be an integer from 1 to 9"],
  ["nodes of others", () => memoryNodes(wrong([{}]), { clock }), TypeError, "nodes must be a number of nodes, or"],
  [
    "nodes of another clock",
    () => memoryNodes([node as MemoryNode], { clock: new VirtualClock() }),
    TypeError,
    "nodes must be nodes of the same VirtualClock as clock",
  ],
  ["a real clock", () => memoryNodes(1, { clock: wrong({}) }), TypeError, "clock must be a VirtualClock or a process"],
  ["latency", () => memoryNodes(1, { clock, latency: wrong("1") }), TypeError, "latency must be an integer >= 0 (ms)"],
  ["empty", () => node?.restart({ empty: wrong(1) }), TypeError, "empty must be a boolean, got 1"],
  [
    "a node's failover",
    () => node?.failover(10_001),
    RangeError,
    "ms must be an integer from 0 to 10000 (ms), got 10001",
  ],
  ["a node's freeze", () => node?.freeze(-1), RangeError, "ms must be an integer >= 0 (ms), got -1"],
  ["a partition", () => node?.partition(Infinity), RangeError, "ms must be an integer >= 0 (ms), got Infinity"],
  ["a node's skew", () => node?.skew(wrong("1")), TypeError, "ms must be an integer"],
  ["a process's freeze", () => clock.freeze(0.5), RangeError, "ms must be an integer >= 0 (ms), got 0.5"],
  ["a suspend", () => clock.suspend(wrong(undefined)), TypeError, "ms must be an integer >= 0 (ms)"],
  ["a process's skew", () => clock.skew(Number.NaN), RangeError, "ms must be an integer"],
  ["a resource", () => check.acted("", 1), RangeError, "resource must be a non-empty string"],
  ["a fencing token", () => check.acted("a", wrong("1")), TypeError, "fencingToken must be an integer"],
])("refuses %s by name", (_what, call, kind, message) => {
  expect(call).toThrow(kind);
  expect(call).toThrow(message);
});

it.each<[string, () => Promise<unknown>, string]>([
  ["advance", () => clock.advance(-1), "ms must be an integer >= 0"],
  ["sleep", () => clock.sleep(-1), "ms must be an integer >= 0"],
  ["a signal", () => clock.sleep(1, { signal: wrong({}) }), "signal must be an AbortSignal"],
  ["within", () => clock.until(Promise.resolve(), { within: -1 }), "within must be an integer >= 0"],
  ["a promise", () => clock.until(wrong(1)), "promise must be an object with the functions then"],
])("rejects a wrong %s by name", async (_what, call, message) => {
  await expect(call()).rejects.toThrow(message);
});
