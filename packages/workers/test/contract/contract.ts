/**
 * The contract with BullMQ: everything that the lane relies on, shown by what users do with their queues and see of them. It runs
 * against whatever `bullmq` is in the test file that calls it.
 */
import { describe } from "vitest";
import { testFailures } from "./failures.ts";
import { testFeatures } from "./features.ts";
import { keyKinds } from "./key.ts";
import { testLocks } from "./locks.ts";
import { testLostAnswers } from "./lost-answers.ts";
import { testOrder } from "./order.ts";
import { testRecovery } from "./recovery.ts";
import { testScripts } from "./scripts.ts";

const PARTS = [testOrder, testLocks, testFailures, testRecovery, testFeatures, testLostAnswers];

export function testContract(kinds: readonly (keyof typeof keyKinds)[], parts = PARTS): void {
  testScripts();
  describe.concurrent.each(kinds)("keys by %s", (kind) => {
    for (const test of parts) test(keyKinds[kind]);
  });
}
