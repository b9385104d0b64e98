/** The lines of waiters of one node: their order, and their ends after every process has gone without a word. */

import { memberOf } from "@x/test-support";
import { beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { NODE_KEYS } from "../../../packages/redlock-core/src/rules/keys.ts";
import {
  acquireText,
  leaveText,
  releaseText,
  WAITER_TTL_MS,
  waitText,
} from "../../../packages/redlock-core/src/rules/operation.ts";
import { TOKEN_LENGTH } from "../../../packages/redlock-core/src/rules/token.ts";
import { evaluate, Store } from "../../../packages/testing/src/world.ts";
import { SCRIPTS } from "./scripts-under-test.ts";

const [OURS, NEXT] = ["xa1", "xb2"].map((name) => name.padEnd(TOKEN_LENGTH, "0")) as [string, string];
const TTL_MS = 10_000;
const START_MS = 1_795_000_000_000;

const waiter = (place: number): string => memberOf(place, `x:redlock:p#${place}`);

describe("the lines of waiters", () => {
  let store: Store;
  let nowMs: number;
  let turns: string[];

  beforeEach(() => {
    nowMs = START_MS;
    turns = [];
    store = new Store({
      nowUs: () => nowMs * 1_000,
      info: () => "",
      publish: (_channel, message) => {
        turns.push(message);
        return 1;
      },
    });
  });

  const ask = (key: string, text: string, kind: BatchOperation["kind"]): unknown => {
    const requests = new BatchRequests(
      {
        ...{ isAlone: true, isCluster: false, quarantineMs: 0 },
        ...{ grantTtlMs: 1_000, countsReceivers: true, waiterTtlMs: WAITER_TTL_MS },
      },
      systemClock,
    );
    const target = { resources: [key], keys: [key], registers: undefined, slot: 0 };
    const { keys, args } = requests.of([{ target, text, kind }]);
    return evaluate(store, SCRIPTS.batch, keys, args);
  };
  const acquire = (key: string, token: string, member?: string): unknown =>
    ask(key, acquireText(1, token, { ttlMs: TTL_MS, ballot: 0, member }), "acquire");
  const waitersOf = (key: string): unknown =>
    (evaluate(store, SCRIPTS.inspect, [NODE_KEYS.lastNumber, key, NODE_KEYS.lines], ["", "0"]) as unknown[])[3];
  const lineEnd = (key: string): number => Number(store.call("ZSCORE", [NODE_KEYS.lineEnds, key]));
  const expiries = (): unknown[] =>
    store
      .dump()
      .filter(({ key }) => key === NODE_KEYS.lines || key === NODE_KEYS.lineEnds)
      .map(({ expiresMs }) => expiresMs);

  it("contain only the waiters of their own lock, whatever the names of the locks", () => {
    const names = ["a", "a:", "a:1", "1:a", "1:a:", "", ":", "a;", "aa", "2:aa"];
    for (const [index, name] of names.entries()) {
      for (let place = 0; place <= index; place += 1) ask(name, waitText(1, waiter(place)), "wait");
      acquire(name, OURS);
    }
    // The first waiter of each line had its turn.
    expect(names.map(waitersOf)).toEqual(names.map((_, index) => index));
    expect(turns).toEqual(expect.arrayContaining(names.map((name) => `turn ${waiter(0)} ${name}`)));
  });

  it("are served in the order of places, and a member that asks again keeps its place", () => {
    acquire("r", OURS);
    for (const place of [30, 4, 200, 4]) acquire("r", NEXT, waiter(place));
    expect(waitersOf("r")).toBe(3);
    ask("r", releaseText(1, OURS), "release");
    expect(turns).toEqual([`turn ${waiter(4)} r`, `next1 ${waiter(30)} r`, `next2 ${waiter(200)} r`]);
    expect(store.call("GET", ["r"])).toBe(`reserved:${waiter(4)}`);
  });

  it("end a while after the lease that their waiters wait for, unless a waiter asks again", () => {
    acquire("r", OURS);
    acquire("r", NEXT, waiter(1));
    expect(lineEnd("r")).toBe(START_MS + TTL_MS + WAITER_TTL_MS + 1_000);
    nowMs += 5_000;
    acquire("r", NEXT, waiter(1));
    expect(lineEnd("r")).toBe(START_MS + TTL_MS + WAITER_TTL_MS + 1_000);
    store.call("PEXPIRE", ["r", String(TTL_MS)]);
    acquire("r", NEXT, waiter(1));
    expect(lineEnd("r")).toBe(nowMs + TTL_MS + WAITER_TTL_MS + 1_000);
  });

  it("are removed when they have ended, as soon as any line of the node is prolonged", () => {
    for (const key of ["r", "s"]) {
      acquire(key, OURS);
      acquire(key, NEXT, waiter(1));
    }
    nowMs = lineEnd("r") + 1;
    acquire("s", OURS);
    acquire("s", NEXT, waiter(2));
    expect([waitersOf("r"), waitersOf("s")]).toEqual([0, 1]);
    expect(store.call("ZSCORE", [NODE_KEYS.lineEnds, "r"])).toBeNull();
  });

  it("leave no key on the node when all processes have gone", () => {
    acquire("r", OURS);
    acquire("r", NEXT, waiter(1));
    ask("r", leaveText(1, waiter(1)), "leave");
    // The set of lines is new, and the known end of the line is not prolonged.
    acquire("r", NEXT, waiter(2));
    expect(expiries()).toEqual([lineEnd("r") + 1_000, lineEnd("r") + 1_000]);
    nowMs = lineEnd("r") + 1_001;
    expect(expiries()).toEqual([]);
  });
});
