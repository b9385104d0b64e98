import assert from "node:assert/strict";
import { LockLostError, Redlock } from "@x/redlock-core";
import { memoryNodes, VirtualClock } from "@x/testing";
import { test } from "vitest";

interface Transfer {
  readonly fence: number;
  readonly signal: AbortSignal;
}

/** Your code: makes the payments one after the other, and stops when the lock is lost. */
async function payOut(
  redlock: Redlock,
  payments: string[],
  transfer: (payment: string, how: Transfer) => Promise<void>,
) {
  await redlock.using("account:42", async (lock) => {
    for (const payment of payments) {
      await transfer(payment, { fence: lock.fencingToken, signal: lock.signal });
    }
  });
}

test("a payout that loses its lock transfers nothing more", async () => {
  const clock = new VirtualClock();
  const nodes = memoryNodes(3, { clock });
  const redlock = new Redlock(nodes, { clock, ttl: 10_000 });
  const check = clock.checkLocks();
  const paid: string[] = [];

  // Replaces the bank: a transfer takes six seconds, unless the signal aborts.
  const transfer = async (payment: string, { fence, signal }: Transfer) => {
    await clock.sleep(6_000, { signal });
    check.acted("account:42", fence); // a violation, if the lock had ended by now
    paid.push(payment);
  };

  const payout = payOut(redlock, ["rent", "wages", "tax"], transfer);
  await clock.advance(7_000); // the rent is paid,
  for (const node of nodes.slice(0, 2)) node.partition(60_000); // and two of three nodes cannot be reached:
  await assert.rejects(clock.until(payout), LockLostError); // in the middle of the tax, the lock is lost.

  assert.deepEqual(paid, ["rent", "wages"]);
  check.verify();
  await clock.until(redlock.close());
});
