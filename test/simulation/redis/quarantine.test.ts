/**
 * The rule of quarantine exists in Lua and in JavaScript. Both give the same result for every content of the node's
 * hash.
 */

import fc from "fast-check";
import { expect, it } from "vitest";
import { quarantineLeftMs } from "../../../packages/redlock-core/src/rules/quarantine.ts";
import { quarantineIn } from "../../../packages/redlock-core/src/scripts/quarantine.lua.ts";
import { evaluate, Store } from "../../../packages/testing/src/world.ts";

const NOW_US = 1_795_000_000_000_000;

const script = `
local call, now, quarantineMs, quarantineLeftMs = redis.call, ARGV[1], ARGV[2], 0
local nowUs, seen = tonumber(now), call('HMGET', KEYS[1], 'run_id', 'since')
${quarantineIn("KEYS[1]")}
return quarantineLeftMs`;

const state = fc.record({
  runId: fc.constantFrom("a1", "b2", "a", "1"),
  knownRunId: fc.constantFrom(undefined, "a1", "b2"),
  ageUs: fc.oneof(fc.integer({ min: -3, max: 3 }), fc.integer({ min: -5_000_000, max: 5_000_000 })),
  wholeMs: fc.integer({ min: 1, max: 3_000 }),
});

it("the rule of quarantine returns the same time in JavaScript as in Lua, now and later", () => {
  fc.assert(
    fc.property(state, fc.integer({ min: 0, max: 4_000_000 }), ({ runId, knownRunId, ageUs, wholeMs }, laterUs) => {
      let nowUs = NOW_US;
      const store = new Store({ nowUs: () => nowUs, info: () => `run_id:${runId}\r\n`, publish: () => 0 });
      if (knownRunId !== undefined) store.call("HSET", ["n", "run_id", knownRunId, "since", String(nowUs - ageUs)]);
      const seenOf = (): { readonly knownRunId: string | undefined; readonly sinceUs: number } => {
        const [seen, since] = ["run_id", "since"].map((field) => store.call("HGET", ["n", field]));
        return { knownRunId: typeof seen === "string" ? seen : undefined, sinceUs: Number(since ?? Number.NaN) };
      };
      for (const afterUs of [0, laterUs]) {
        nowUs += afterUs;
        const told = quarantineLeftMs(wholeMs, { nowUs, runId, ...seenOf() });
        expect(evaluate(store, script, ["n"], [String(nowUs), String(wholeMs)])).toBe(told);
      }
    }),
    { numRuns: 500 },
  );
});

it("the script of quarantine names the missing field if INFO has no run_id", () => {
  const store = new Store({ nowUs: () => NOW_US, info: () => "redis_version:7.4.0\r\n", publish: () => 0 });
  expect(() => evaluate(store, script, ["n"], [String(NOW_US), "1000"])).toThrow(
    "NO_RUN_ID INFO of this server has no run_id",
  );
  expect(store.call("EXISTS", ["n"])).toBe(0);
});
