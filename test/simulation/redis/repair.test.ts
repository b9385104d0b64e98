/**
 * How an extension sets a missing key again: the rules of scripts/extend.lua.ts, which schedules need only after a
 * manual DEL.
 */

import { beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { NODE_KEYS, sideKeyOf, slotOf } from "../../../packages/redlock-core/src/rules/keys.ts";
import {
  acquireText,
  extendText,
  releaseText,
  repairText,
} from "../../../packages/redlock-core/src/rules/operation.ts";
import { TOKEN_LENGTH } from "../../../packages/redlock-core/src/rules/token.ts";
import { evaluate, Store } from "../../../packages/testing/src/world.ts";
import { SCRIPTS } from "./scripts-under-test.ts";

const NOW_US = 1_795_000_000_000_000;
const KEY = "{t}a";
/** Another resource of the same register. */
const NEIGHBOUR = "{t}b";
const NOTE = sideKeyOf(KEY, "fence");
const TOKEN = "xa1".padEnd(TOKEN_LENGTH, "0");
const FENCE = NOW_US - 1_000;

describe.each([
  { name: "one of several nodes", isAlone: false, quarantineMs: 0 },
  { name: "one of several nodes, in quarantine", isAlone: false, quarantineMs: 60_000 },
  { name: "a node alone", isAlone: true, quarantineMs: 0 },
  { name: "a node alone, in quarantine", isAlone: true, quarantineMs: 60_000 },
])("$name", ({ isAlone, quarantineMs }) => {
  const isQuarantined = quarantineMs > 0;
  let store: Store;
  beforeEach(() => {
    store = new Store({ nowUs: () => NOW_US, info: () => "run_id:1\r\n", publish: () => 1 });
  });

  const targetOf = (key: string): BatchOperation["target"] => ({
    resources: [key],
    keys: [key],
    registers: isAlone ? undefined : [String(slotOf(key))],
    slot: 0,
  });
  const ask = (text: string, key: string, kind: BatchOperation["kind"]): unknown => {
    const requests = new BatchRequests(
      {
        isAlone,
        isCluster: false,
        quarantineMs,
        grantTtlMs: 1_000,
        countsReceivers: true,
        waiterTtlMs: 60_000,
      },
      systemClock,
    );
    const operation = { target: targetOf(key), text, kind };
    const { keys, args } = requests.of([operation]);
    const reply = evaluate(store, SCRIPTS.batch, keys, args);
    return Array.isArray(reply) ? reply[2] : Number(reply);
  };
  const lease = { target: targetOf(KEY), token: TOKEN, ttlMs: 1_000, fencingToken: FENCE };
  const extend = (): unknown => ask(extendText(lease), KEY, "extend");
  const repair = (): unknown => ask(repairText(lease), KEY, "repair");
  const grant = (key: string): void => {
    const token = "xb2".padEnd(TOKEN_LENGTH, "0");
    ask(acquireText(1, token, { ttlMs: 1_000, ballot: NOW_US }), key, "acquire");
    ask(releaseText(1, token), key, "release");
  };
  const valueOf = (key: string): unknown => store.call("GET", [key]);
  const greatest = (): number =>
    Number(isAlone ? valueOf(NODE_KEYS.lastNumber) : store.call("HMGET", [NODE_KEYS.hash, String(slotOf(KEY))]));

  it("sets a missing key again, and refuses every older grant afterwards", () => {
    expect(extend()).toBe(2);
    expect(valueOf(KEY)).toBe(TOKEN);
    expect(greatest()).toBe(FENCE);
  });

  it(`${isQuarantined ? "sets the key again" : "changes nothing"} if a newer lock was granted`, () => {
    grant(NEIGHBOUR);
    const before = greatest();
    expect(extend()).toBe(isQuarantined ? 2 : 3);
    expect(valueOf(KEY)).toBe(isQuarantined ? TOKEN : null);
    expect(greatest()).toBe(before);
  });

  it("sets the key again nevertheless for a holder who knows that no other client can have the lock", () => {
    grant(NEIGHBOUR);
    expect(repair()).toBe(1);
    expect(valueOf(KEY)).toBe(TOKEN);
  });

  it("does not replace the key of another client", () => {
    store.call("SET", [KEY, "somebody else's"]);
    expect([extend(), repair()]).toEqual([[0, 0], 0]);
  });

  it("does not restore a key that an operator released by force", () => {
    store.call("SET", [NOTE, String(FENCE)]);
    expect([extend(), repair()]).toEqual([[0, 0, 1], 0]);
    expect(valueOf(KEY)).toBeNull();
  });

  it("ignores a note about an earlier holder", () => {
    store.call("SET", [NOTE, String(FENCE - 1)]);
    expect(extend()).toBe(2);
    store.call("DEL", [KEY]);
    grant(NEIGHBOUR);
    expect(repair()).toBe(1);
  });
});
