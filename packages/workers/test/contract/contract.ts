/**
 * The contract with BullMQ: all behavior that the lane relies on, shown by calls and results of users. The contract
 * runs against the `bullmq` of the test file that calls it.
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
