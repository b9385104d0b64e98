/** Records that the scripts store next to the lock, and records that they refuse, on real nodes. */
import { type Lock, LockHeldError, type Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Ledger } from "../src/record/ledger.ts";
import { claimOf, heldNow, type TermRecord } from "../src/rules/record.ts";
import { type Nodes, startNodes } from "./support/redis.ts";

const record = (term: number): TermRecord => ({ term, id: `id${term}`, instance: `i${term}`, sinceMs: 1 });

describe("the record next to the lock", () => {
  let nodes: Nodes;
  let redlock: Redlock;
  beforeAll(async () => {
    nodes = await startNodes(3);
    redlock = nodes.redlock();
  });
  afterAll(async () => {
    await nodes[Symbol.asyncDispose]();
  });

  const ledgerOf = (name: string): Ledger => new Ledger(redlock, name, `leader:${name}`);
  const write = (
    ledger: Ledger,
    term: number,
    more: { revision?: number; ended?: boolean } = {},
  ): ReturnType<Ledger["write"]> =>
    ledger.write({
      record: record(term),
      revision: more.revision ?? 0,
      token: `token${term}`,
      ended: more.ended ?? false,
    });
  it("is not replaced by the record of an older term", async () => {
    const ledger = ledgerOf("older");
    expect(await write(ledger, 20)).toMatchObject({ outcome: "written" });
    expect(await write(ledger, 19)).toMatchObject({ outcome: "stale" });
    const [view] = await ledger.read(0);
    expect(view).toMatchObject({ term: 20, terms: [{ term: 20 }] });
  });

  it("names the holder from the grant until the lease expires, and a refused attempt changes nothing", async () => {
    const ledger = ledgerOf("grant");
    const claim = (id: string): string => claimOf({ id, instance: `${id}#1`, value: "here" });
    const take = (id: string): Promise<Lock> =>
      protocolOf(redlock).acquire("leader:grant", { ttl: 2_000, timeout: 0 }, claim(id));
    const lock = await take("a");
    await expect(take("b")).rejects.toThrow(LockHeldError);
    const held = heldNow(await ledger.look(0), ledger.quorum);
    expect(held).toMatchObject({ record: { id: "a", instance: "a#1", value: "here", term: lock.fencingToken } });
    for (const server of nodes.servers) {
      // A quorum has granted the lock; the last node may receive it a moment later.
      await expect.poll(() => server.call("PTTL", ledger.key("note"))).toBeGreaterThan(0);
      expect(await server.call("PTTL", ledger.key("note"))).toBeLessThanOrEqual(2_000);
    }
    await lock.release();
    expect(heldNow(await ledger.look(1), ledger.quorum)).toBeUndefined();
    expect((await ledger.read(0))[0]).toMatchObject({ term: 0, terms: [] });
  });

  it("keeps a clean end despite a late renewal, and a value despite an older write", async () => {
    const ledger = ledgerOf("ended");
    await write(ledger, 5, { revision: 2 });
    await write(ledger, 5, { revision: 1, ended: true });
    await write(ledger, 5, { revision: 2 });
    const [view] = await ledger.read(0);
    expect(view).toMatchObject({ term: 5, revision: 2, ended: true });
  });

  it("contains the last thousand terms, exactly and in order", async () => {
    const ledger = ledgerOf("history");
    const first = 2 ** 53 - 2_000;
    for (let term = first; term < first + 1_010; term += 1) await write(ledger, term);
    const [view] = await ledger.read(0);
    expect(view?.terms.map((each) => each.term)).toEqual(
      Array.from({ length: 1_000 }, (_, index) => first + 10 + index),
    );
    const [later] = await ledger.read(first + 1_007);
    expect(later?.terms.map((each) => each.term)).toEqual([first + 1_008, first + 1_009]);
  });

  it("has an expiry on every key", async () => {
    const ledger = ledgerOf("expiry");
    await write(ledger, 1);
    await ledger.requestResign(1, 1_000);
    const [server] = nodes.servers;
    const keys = (await server?.call("KEYS", "{leader:expiry}:*")) as string[];
    expect(keys.map((key) => key.slice(key.lastIndexOf(":") + 1)).toSorted()).toEqual(["leader", "request", "terms"]);
    for (const key of keys) expect(await server?.call("PTTL", key)).toBeGreaterThan(0);
  });
});
