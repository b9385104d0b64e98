/**
 * The part of the contract that a client other than ioredis could break: the lane's scripts, separate locks, and lost
 * answers. `X_WHOLE_CONTRACT=1` runs the whole contract.
 */
import { testContract } from "./contract.ts";
import { testLocks } from "./locks.ts";
import { testLostAnswers } from "./lost-answers.ts";
import { testOrder } from "./order.ts";

export function testOtherClient(): void {
  if (process.env["X_WHOLE_CONTRACT"] === "1") testContract(["path"]);
  else testContract(["path"], [testOrder, testLocks, testLostAnswers]);
}
