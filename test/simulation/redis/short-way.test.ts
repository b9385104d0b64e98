/**
 * Compares the short forms of the lock's script with the full rule: the same replies, messages and keys in any state.
 */

import { expect, it } from "vitest";
import { systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { keysOf, NODE_KEYS, slotOf } from "../../../packages/redlock-core/src/rules/keys.ts";
import {
  acquireText,
  digits,
  extendText,
  isAcquisition,
  memberOf,
  releaseText,
  waitText,
} from "../../../packages/redlock-core/src/rules/operation.ts";
import { TOKEN_LENGTH } from "../../../packages/redlock-core/src/rules/token.ts";
import { evaluate, SeededRandom, Store } from "../../../packages/testing/src/world.ts";
import { SCRIPTS } from "./scripts-under-test.ts";

const short = SCRIPTS.batch;
/** The script without its short forms, whose conditions are never true here. */
const long = [
  ["if isWaiting and (last == 2 or last == 3) then", "if false then"],
  ["if kind == 97 then\n    if not", "if kind == 0 then\n    if not"],
  ["elseif kind == 114 then\n    if try", "elseif kind == 0 then\n    if try"],
  ["elseif kind == 101 then\n    if try", "elseif kind == 0 then\n    if try"],
].reduce((source, [find = "", replace = ""]) => {
  if (source.split(find).length !== 2) throw new Error(`not once: ${find}`);
  return source.replace(find, replace);
}, short);
/** The channel of a process that has gone. */
const GONE = "x:redlock:q";
const START_US = 1_795_000_000_000_000;

class Node {
  readonly heard: string[] = [];
  /** How often a waiter took the short form: at its turn, and behind the release. */
  readonly waitersGranted = [0, 0];
  calls = 0;
  readonly store: Store;
  readonly #isAlone: boolean;
  /** Requests for a node that does not count the receivers of a message, and for a node that does. */
  readonly #requests: readonly [no: BatchRequests, yes: BatchRequests];

  constructor(isAlone: boolean, quarantineMs: number, nowUs: () => number) {
    this.#isAlone = isAlone;
    const facts = {
      isAlone,
      isCluster: false,
      quarantineMs,
      grantTtlMs: 1_000,
      waiterTtlMs: 60_000,
    };
    this.#requests = [
      new BatchRequests({ ...facts, countsReceivers: false }, systemClock),
      new BatchRequests({ ...facts, countsReceivers: true }, systemClock),
    ];
    this.store = new Store({
      nowUs,
      info: () => "run_id:1\r\n",
      publish: (channel, message) => {
        if (channel === GONE) return 0;
        this.heard.push(`${channel} ${message}`);
        return 1;
      },
    });
    const call = this.store.call.bind(this.store);
    this.store.call = (...command) => {
      this.calls += 1;
      return call(...command);
    };
  }

  isReservedForGone(resources: readonly string[]): boolean {
    return resources.some((key) => this.store.peek(key)?.text.includes(GONE) === true);
  }

  /** Returns the replies to the operations, as batcher.ts reads them. */
  run(
    source: string,
    batch: readonly BatchOperation[],
    { greatest, countsReceivers }: { readonly greatest: number; readonly countsReceivers: boolean },
  ): readonly unknown[] {
    const { keys, args } = this.#requests[countsReceivers ? 1 : 0].of(batch, digits(greatest));
    const reply = evaluate(this.store, source, keys, args);
    if (!Array.isArray(reply) && batch.at(-1)?.text.startsWith("A") === true)
      this.waitersGranted[batch.length - 1] = (this.waitersGranted[batch.length - 1] ?? 0) + 1;
    if (Array.isArray(reply)) return reply.slice(2).map((each) => (isError(each) ? "error" : each));
    const isNumbered = ({ kind }: BatchOperation): boolean => this.#isAlone && isAcquisition(kind);
    let number = Number(reply) - batch.filter(isNumbered).length;
    return batch.map((each) => {
      if (!isNumbered(each)) return 1;
      number += 1;
      return number;
    });
  }
}

it.each([
  ["one of several nodes", false, 0],
  ["one of several nodes, with quarantine", false, 1_000],
  ["a node alone", true, 0],
  ["a node alone, with quarantine", true, 1_000],
] as const)("the short way does the same as the long way: %s", { timeout: 600_000 }, (_name, isAlone, quarantineMs) => {
  const random = new SeededRandom("short way");
  let nowUs = START_US;
  const [node, reference] = [
    new Node(isAlone, quarantineMs, () => nowUs),
    new Node(isAlone, quarantineMs, () => nowUs),
  ];
  const tokens = ["xa1", "xb2"].map((name) => name.padEnd(TOKEN_LENGTH, "0"));
  const draw = (kinds: readonly string[], resources: readonly string[]): BatchOperation => {
    const keys = keysOf("", resources);
    const count = keys.length;
    const target = {
      resources,
      keys,
      registers: isAlone ? undefined : keys.map((key) => String(slotOf(key))),
      slot: 0,
    };
    const token = random.pick(tokens);
    // A waiter keeps its place in line.
    const place = random.integer(1, 4);
    const order = START_US + place;
    const member = memberOf(order, `${place === 2 ? GONE : "x:redlock:p"}#${place}`);
    const ttlMs = random.integer(20, 3_000);
    const release = { target, kind: "release" as const, text: releaseText(count, token) };
    switch (random.pick(kinds)) {
      case "A": {
        const waits = random.chance(0.2);
        const facts = {
          ttlMs,
          ballot: nowUs + random.pick([0, 1, 1_000, 400_000, 700_000, -1_000]),
          place: random.chance(0.3) ? order : undefined,
          member: waits ? member : undefined,
          note: random.chance(0.1) ? "note" : undefined,
        };
        const kind = facts.note === undefined ? "acquire" : "acquireNoted";
        return { target, kind, text: acquireText(count, token, facts) };
      }
      case "waiter":
        return {
          target,
          kind: "acquire",
          text: acquireText(count, token, { ttlMs, ballot: nowUs, member }),
        };
      case "E":
        return { target, kind: "extend", text: extendText({ target, token, ttlMs, fencingToken: nowUs }) };
      case "unreadable":
        return { target, kind: "extend", text: `E${count} ${token}` };
      case "W":
        return random.chance(0.2) ? { target, kind: "wait", text: waitText(count, member) } : release;
      default:
        return release;
    }
  };
  let [taken, errors] = [0, 0];
  /**
   * How often the short form notified the next waiter: in a lone release, and in a release behind which a waiter asked.
   */
  const handedOver = [0, 0];
  /** How often the short form reserved the lock for a waiter whose receivers the node could not count. */
  let reservedUnheard = 0;
  for (let step = 0; step < 6_000; step += 1) {
    nowUs += random.pick([0, 0, 100, 100, 5_000, 5_000, 900_000, 4_000_000]);
    if (random.chance(0.01)) nowUs -= 20_000_000;
    if (random.chance(0.02)) {
      const [command, ...args] = random.pick([
        ["SET", "a", "somebody", "PX", "500"],
        ["HSET", "a", "f", "1"],
        ["HSET", "{t}b", "f", "1"],
        ["DEL", "a", "{t}b", NODE_KEYS.lastNumber, NODE_KEYS.hash],
      ]);
      for (const { store } of [node, reference]) {
        store.call("DEL", args.slice(0, 1));
        store.call(command ?? "", args);
      }
    }
    const kinds = ["A", "A", "A", "R", "R", "E", "W", "unreadable"];
    const single = [random.pick(["a", "{t}b"])];
    const batch = random.chance(0.4)
      ? random.pick([["R", "waiter"], ["waiter"], ["waiter"], ["R"]]).map((kind) => draw([kind], single))
      : Array.from({ length: random.pick([0, 1, 1, 2, 3, 6]) }, () =>
          draw(kinds, random.chance(0.9) ? [random.pick(["a", "{t}b"])] : ["a", "{t}b"]),
        );
    const greatest = random.chance(0.1) ? nowUs + random.integer(-9, 9) * 1_000_000 : 0;
    const facts = { greatest, countsReceivers: random.chance(0.7) };
    const heard = node.heard.length;
    const wasReserved = node.isReservedForGone(single);
    const replies = node.run(short, batch, facts);
    expect(replies).toHaveLength(batch.length);
    expect({ step, batch, replies }).toEqual({ step, batch, replies: reference.run(long, batch, facts) });
    expect(node.store.dump()).toEqual(reference.store.dump());
    const isShort = node.calls < reference.calls;
    if (isShort && node.heard[heard]?.includes(" turn ") === true)
      handedOver[batch.length - 1] = (handedOver[batch.length - 1] ?? 0) + 1;
    if (isShort && !wasReserved && node.isReservedForGone(single)) reservedUnheard += 1;
    node.calls = 0;
    reference.calls = 0;
    taken += replies.filter((reply) => typeof reply === "number" && reply > 0).length;
    errors += replies.filter((reply) => reply === "error").length;
  }
  expect(node.heard).toEqual(reference.heard);
  expect(taken).toBeGreaterThan(1_000);
  expect(errors).toBeGreaterThan(50);
  const expected = isAlone && quarantineMs === 0 ? 20 : 0;
  for (const granted of node.waitersGranted) expect(granted).toBeGreaterThanOrEqual(expected);
  expect(handedOver[0]).toBeGreaterThanOrEqual(20);
  expect(handedOver[1]).toBeGreaterThanOrEqual(expected / 2);
  expect(reservedUnheard).toBeGreaterThanOrEqual(5);
});

function isError(reply: unknown): boolean {
  return Array.isArray(reply) && reply[0] === -1;
}
