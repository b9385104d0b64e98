/** `once` on a real server: races of two transactions, refusals, and stored results. */
import { type EffectsEvents, TransactionEndedError } from "@x/effects";
import { FencedOffError } from "@x/redlock-core";
import { errorOf, isWithoutPostgres, type PostgresServer, startPostgres } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { gate, type Job, job, Lab, lock } from "./support/lab.ts";

/** Patience for a loaded machine, and an end for a test that hangs. */
const patient = { timeout: 60_000 } as const;

describe.skipIf(isWithoutPostgres())("once", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(async () => await server.stop());

  it("returns the result of the first call to every later one, and has one effect", async () => {
    await using lab = await Lab.open(server);
    const first = await lab.effects.once({ job: job("a"), lock: lock(7) }, lab.charge);
    const second = await lab.effects.once({ job: job("a"), lock: lock(8) }, () => ({ charged: false }));
    expect([first, second]).toEqual([{ charged: true }, { charged: true }]);
    expect(await lab.charges()).toBe(1);
  });

  it("lets a new holder wait for the transaction of the old one, and return its result", async () => {
    await using lab = await Lab.open(server);
    const { opened, open } = gate();
    const old = lab.effects.once({ job: job("a"), lock: lock(1) }, async (tx) => {
      const result = await lab.charge(tx);
      await opened;
      return result;
    });
    await expect
      .poll(() => lab.rows("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"), patient)
      .toHaveLength(1);
    const next = lab.effects.once({ job: job("a"), lock: lock(2) }, lab.charge);
    await lab.untilWaiting();
    open();
    expect(await Promise.all([old, next])).toEqual([{ charged: true }, { charged: true }]);
    expect(await lab.charges()).toBe(1);
  });

  it("returns the stored result to an old holder that waited for the new one", async () => {
    await using lab = await Lab.open(server);
    const { opened, open } = gate();
    const started = gate();
    const next = lab.effects.once({ job: job("a"), lock: lock(2) }, async (tx) => {
      const result = await lab.charge(tx);
      started.open();
      await opened;
      return result;
    });
    await started.opened;
    const old = lab.effects.once({ job: job("a"), lock: lock(1) }, lab.charge);
    await lab.untilWaiting();
    open();
    expect(await Promise.all([next, old])).toEqual([{ charged: true }, { charged: true }]);
    expect(await lab.charges()).toBe(1);
  });

  it("lets an old holder perform the effect if the new one has rolled back", async () => {
    await using lab = await Lab.open(server);
    const { opened, open } = gate();
    const started = gate();
    const next = lab.effects.once({ job: job("a"), lock: lock(2) }, async (tx) => {
      await lab.charge(tx);
      started.open();
      await opened;
      throw new Error("no");
    });
    await started.opened;
    const old = lab.effects.once({ job: job("a"), lock: lock(1) }, lab.charge);
    await lab.untilWaiting();
    open();
    expect(await errorOf(next)).toMatchObject({ message: "no" });
    expect(await old).toEqual({ charged: true });
    expect(await lab.effects.once({ job: job("a"), lock: lock(3) }, lab.charge)).toEqual({ charged: true });
    expect(await lab.charges()).toBe(1);
  });

  it("refuses another effect of an old holder once a newer one has committed", async () => {
    await using lab = await Lab.open(server);
    await lab.effects.once({ job: job(), lock: lock(2) }, lab.charge);
    const error = await errorOf(lab.effects.once({ job: job(), lock: lock(1) }, lab.charge));
    expect(error).toBeInstanceOf(FencedOffError);
    expect(error).toMatchObject({ code: "FENCED_OFF", key: "account:1", fencingToken: 1, claimedBy: 2 });
    expect(await lab.charges()).toBe(1);
  });

  it("returns the stored result of its own effect to an old holder", async () => {
    await using lab = await Lab.open(server);
    await lab.effects.once({ job: job("a"), lock: lock(1) }, lab.charge);
    await lab.effects.once({ job: job("b"), lock: lock(2) }, lab.charge);
    expect(await lab.effects.once({ job: job("a"), lock: lock(1) }, lab.charge)).toEqual({ charged: true });
    expect(await lab.charges()).toBe(2);
  });

  it("accepts the term of a leader, and refuses an older term", async () => {
    await using lab = await Lab.open(server);
    const term = (fencingToken: number) => ({ election: "billing", fencingToken });
    await lab.effects.once({ key: "invoice:1", lock: term(5) }, lab.charge);
    const error = await errorOf(lab.effects.once({ key: "invoice:2", lock: term(4) }, lab.charge));
    expect(error).toMatchObject({ code: "FENCED_OFF", key: "leader:billing" });
  });

  it("claims nothing for a job without a key", async () => {
    await using lab = await Lab.open(server);
    await lab.effects.once({ job: job(), lock: { fencingToken: 0, resources: [] } }, lab.charge);
    await lab.effects.once({ job: job() }, lab.charge);
    expect(await lab.rows(`SELECT * FROM ${lab.prefix}fence`)).toEqual([]);
    expect(await lab.charges()).toBe(2);
  });

  it("has one effect of fifteen executions at the same time", async () => {
    await using lab = await Lab.open(server);
    const runs = Array.from({ length: 15 }, () => lab.effects.once({ job: job("a") }, lab.charge));
    expect(new Set((await Promise.all(runs)).map((result) => JSON.stringify(result)))).toEqual(
      new Set(['{"charged":true}']),
    );
    expect(await lab.charges()).toBe(1);
  });

  it("claims several resources in one order, so that no two holders wait for each other", async () => {
    await using lab = await Lab.open(server);
    const effects = lab.effectsWith({ retries: 0 });
    const names = (index: number) => (index % 2 === 0 ? ["x", "y", "z"] : ["z", "y", "x"]);
    const runs = Array.from({ length: 40 }, (_, index) =>
      effects.once({ job: job(), lock: lock(9, ...names(index)) }, lab.charge),
    );
    await Promise.all(runs);
    expect(await lab.charges()).toBe(40);
  });

  it("leaves no claim of one resource if another one is refused", async () => {
    await using lab = await Lab.open(server);
    await lab.effects.once({ job: job(), lock: lock(2, "b") }, lab.charge);
    expect(await errorOf(lab.effects.once({ job: job(), lock: lock(1, "a", "b") }, lab.charge))).toMatchObject({
      code: "FENCED_OFF",
      key: "b",
      claimedBy: 2,
    });
    expect(await lab.rows(`SELECT resource FROM ${lab.prefix}fence`)).toEqual([{ resource: "b" }]);
  });

  it("distinguishes jobs that share an ID by their time", async () => {
    await using lab = await Lab.open(server);
    await lab.effects.once({ job: job("1", 1_000) }, lab.charge);
    await lab.effects.once({ job: job("1", 2_000) }, lab.charge);
    expect(await lab.charges()).toBe(2);
  });

  it("keeps exactly the values that JSON keeps, from the first call on", async () => {
    await using lab = await Lab.open(server);
    const value = { nul: "\u0000", half: "\ud800", none: undefined, at: new Date(0) };
    const first = await lab.effects.once({ key: "odd\u0000:\ud800" }, () => value);
    const second = await lab.effects.once({ key: "odd\u0000:\ud800" }, () => value);
    expect(first).toEqual({ nul: "\u0000", half: "\ud800", at: "1970-01-01T00:00:00.000Z" });
    expect(second).toEqual(first);
    expect(await lab.effects.once({ key: "none" }, () => undefined)).toBeUndefined();
    expect(await lab.effects.once({ key: "none" }, () => 1)).toBeUndefined();
  });

  it("rolls back and rejects if the result is too long", async () => {
    await using lab = await Lab.open(server);
    const effects = lab.effectsWith({ maxResult: 100 });
    const long = effects.once({ key: "long" }, async (tx) => {
      await lab.charge(tx);
      return "x".repeat(100);
    });
    expect(await errorOf(long)).toMatchObject({
      name: "RangeError",
      message: "result must be at most maxResult (100 bytes), got 102",
    });
    expect(await lab.charges()).toBe(0);
    expect(await effects.once({ key: "long" }, () => "x".repeat(98))).toHaveLength(98);
  });

  it("rejects if the function hides a failed statement", async () => {
    await using lab = await Lab.open(server);
    const hidden = lab.effects.once({ job: job() }, async (tx) => {
      await lab.charge(tx);
      await tx.query("SELECT 1/0").catch(() => undefined);
      return 1;
    });
    expect(await errorOf(hidden)).toMatchObject({ code: "25P02" });
    expect(await lab.charges()).toBe(0);
  });

  it("allows savepoints of the function", async () => {
    await using lab = await Lab.open(server);
    await lab.effects.once({ job: job() }, async (tx) => {
      await tx.query("SAVEPOINT s");
      await tx.query("SELECT 1/0").catch(() => undefined);
      await tx.query("ROLLBACK TO SAVEPOINT s");
      await lab.charge(tx);
    });
    expect(await lab.charges()).toBe(1);
  });

  it.each([
    ["COMMIT", ["COMMIT"]],
    ["COMMIT and BEGIN", ["COMMIT", "BEGIN"]],
    ["ROLLBACK", ["ROLLBACK"]],
  ])("rejects if the function sends %s, and stores no outbox row", async (_what, statements) => {
    await using lab = await Lab.open(server);
    const ended = lab.effects.once({ job: job() }, async (tx) => {
      for (const statement of statements) await tx.query(statement);
      tx.enqueue("receipts", "lost", {});
    });
    expect(await errorOf(ended)).toBeInstanceOf(TransactionEndedError);
    const plain = lab.effects.transaction(async (tx) => {
      for (const statement of statements) await tx.query(statement);
      tx.enqueue("receipts", "lost", {});
    });
    expect(await errorOf(plain)).toBeInstanceOf(TransactionEndedError);
    expect(await lab.outbox()).toEqual([]);
  });

  it("refuses a statement and a job after the function has returned", async () => {
    await using lab = await Lab.open(server);
    const tx = await new Promise<Parameters<typeof lab.charge>[0]>((resolve, reject) => {
      lab.effects.once({ job: job() }, (given) => resolve(given)).catch(reject);
    });
    await expect.poll(() => errorOf(tx.query("SELECT 1")), patient).toBeInstanceOf(TransactionEndedError);
    expect(() => tx.enqueue("receipts", "late", {})).toThrow(TransactionEndedError);
  });

  it("refuses a savepoint of a larger transaction", async () => {
    await using lab = await Lab.open(server);
    const client = await lab.pool.connect();
    const query = (text: string, values: unknown[] = []) => client.query(text, values);
    const nested = lab.effectsWith(
      {},
      {
        query,
        async transaction(run) {
          await query("SAVEPOINT s");
          return await run({ query });
        },
      },
    );
    await query("BEGIN");
    expect(await errorOf(nested.once({ key: "n" }, () => 1))).toBeInstanceOf(TransactionEndedError);
    await query("ROLLBACK");
    client.release();
  });

  it("refuses a second call in an execution of a job if the call names no step", async () => {
    await using lab = await Lab.open(server);
    const execution = job("a");
    expect(await lab.effects.once({ job: execution }, () => "reserved")).toBe("reserved");
    expect(await errorOf(lab.effects.once({ job: execution }, () => "recorded"))).toMatchObject({
      name: "RangeError",
      message: expect.stringMatching(/^step must be different in each call of once for a job/),
    });
    expect(await lab.effects.once({ job: execution, step: "record" }, () => "recorded")).toBe("recorded");
    expect(await errorOf(lab.effects.once({ job: execution, step: "record" }, () => 1))).toBeInstanceOf(RangeError);
    // The next execution goes through the same steps.
    const next = job("a");
    expect(await lab.effects.once({ job: next }, () => 1)).toBe("reserved");
    expect(await lab.effects.once({ job: next, step: "record" }, () => 1)).toBe("recorded");
  });

  it("can be called again in an execution after a rejection", async () => {
    await using lab = await Lab.open(server);
    const execution = job("a");
    const failed = lab.effects.once({ job: execution }, () => Promise.reject(new Error("no")));
    expect(await errorOf(failed)).toMatchObject({ message: "no" });
    expect(await lab.effects.once({ job: execution }, lab.charge)).toEqual({ charged: true });
  });

  it("refuses a batch of several jobs, unless the effect has a key", async () => {
    await using lab = await Lab.open(server);
    const batch = { ...lock(1), batch: { jobs: [job("a"), job("b")] } };
    expect(await errorOf(lab.effects.once({ job: job("a"), lock: batch }, lab.charge))).toMatchObject({
      name: "RangeError",
      message: "lock must be of one job, got a batch of 2: give each of its effects a key",
    });
    expect(await lab.effects.once({ key: "a", lock: batch }, lab.charge)).toEqual({ charged: true });
  });

  it("ends the transaction of a holder that pauses for too long, and rejects with the server's reason", async () => {
    await using lab = await Lab.open(server);
    const effects = lab.effectsWith({ idleTimeout: 300 });
    const { opened, open } = gate();
    const started = gate();
    let runs = 0;
    const frozen = effects.once({ job: job("a"), lock: lock(1) }, async (tx) => {
      runs += 1;
      await lab.charge(tx);
      started.open();
      await opened;
      return await lab.charge(tx);
    });
    await started.opened;
    expect(await effects.once({ job: job("a"), lock: lock(2) }, lab.charge)).toEqual({ charged: true });
    open();
    expect(await errorOf(frozen)).toMatchObject({ code: "25P03" });
    expect([runs, await lab.charges()]).toEqual([1, 1]);
  });

  it("repeats after a conflict, but not after an error of another connection", async () => {
    await using lab = await Lab.open(server);
    const retried: EffectsEvents["retried"][] = [];
    lab.effects.on("retried", (message) => retried.push(message));
    let runs = 0;
    const fail = (code: string, often: number) => async (tx: Parameters<typeof lab.charge>[0]) => {
      await lab.charge(tx);
      if (runs++ < often) throw Object.assign(new Error(code), { code });
      return runs;
    };
    expect(await lab.effects.once({ job: job() }, fail("40001", 2))).toBe(3);
    expect(retried.map(({ attempt }) => attempt)).toEqual([1, 2]);
    runs = 0;
    expect(await errorOf(lab.effects.once({ job: job() }, fail("ECONNRESET", 9)))).toMatchObject({
      code: "ECONNRESET",
    });
    expect([runs, await lab.charges()]).toEqual([1, 1]);
  });

  it("gives up after its retries", async () => {
    await using lab = await Lab.open(server);
    let runs = 0;
    const conflict = Object.assign(new Error("conflict"), { code: "40P01" });
    const failed = lab.effectsWith({ retries: 2 }).once({ job: job() }, () => {
      runs += 1;
      throw conflict;
    });
    expect(await errorOf(failed)).toBe(conflict);
    expect(runs).toBe(3);
  });

  it("forgets old effects after cleanup, and then performs them again", async () => {
    await using lab = await Lab.open(server);
    for (const id of ["a", "b", "c"]) await lab.effects.once({ job: job(id) }, lab.charge);
    await lab.rows(`UPDATE ${lab.prefix}inbox SET created_at = now() - interval '31 days' WHERE id LIKE '%"a"%'`);
    await lab.rows(`UPDATE ${lab.prefix}inbox SET created_at = now() - interval '29 days' WHERE id LIKE '%"b"%'`);
    expect(await lab.effects.cleanup()).toBe(1);
    for (const id of ["a", "b", "c"]) await lab.effects.once({ job: job(id) }, lab.charge);
    expect(await lab.charges()).toBe(4);
    await lab.rows(
      `INSERT INTO ${lab.prefix}inbox SELECT 'old' || n, NULL, now() - interval '2 hours' FROM generate_series(1, 2500) n`,
    );
    expect(await lab.effects.cleanup({ olderThan: 3_600_000 })).toBe(2_501);
  });

  it("warns once per worker of a small pool, and of a job that may fail although its effect was committed", async () => {
    await using lab = await Lab.open(server, 5);
    const warnings: string[] = [];
    const onWarning = (warning: Error & { readonly code?: string }): void => {
      if (warning.code?.startsWith("X_EFFECTS_") === true) warnings.push(`${warning.code}: ${warning.message}`);
    };
    process.on("warning", onWarning);
    const worker = { name: "payments", opts: { concurrency: 6 } };
    const careful = { name: "careful", opts: { concurrency: 5, maxStalledCount: 1_000 } };
    for (const queue of [worker, worker, careful, { name: "a producer", opts: {} }])
      await lab.effects.once({ job: { ...job(), queue } as Job }, lab.charge);
    await expect.poll(() => warnings.length, patient).toBeGreaterThan(1);
    process.off("warning", onWarning);
    expect(warnings).toEqual([
      expect.stringMatching(/^X_EFFECTS_POOL: queue "payments": its worker runs 6 jobs at a time with a pool of 5/),
      expect.stringMatching(/^X_EFFECTS_STALLS: queue "payments": maxStalledCount is 1: /),
    ]);
  });

  it("emits an event for each outcome", async () => {
    await using lab = await Lab.open(server);
    const told: unknown[] = [];
    for (const name of ["committed", "repeated", "fencedOff"] as const)
      lab.effects.on(name, (message) => told.push([name, message.fencingToken, message.resources]));
    const first = { job: job("a"), lock: lock(5) };
    await lab.effects.once(first, lab.charge);
    await lab.effects.once({ ...first, job: job("a") }, lab.charge);
    await errorOf(lab.effects.once({ job: job("b"), lock: lock(4) }, lab.charge));
    expect(told).toEqual([
      ["committed", 5, ["account:1"]],
      ["repeated", 5, ["account:1"]],
      ["fencedOff", 4, ["account:1"]],
    ]);
  });

  it("creates its tables once, in another schema, from many processes at the same time", async () => {
    await using lab = await Lab.open(server);
    await lab.rows("CREATE SCHEMA other");
    const effects = lab.effectsWith({ schema: "other", prefix: "e_" });
    await Promise.all(Array.from({ length: 8 }, () => effects.migrate()));
    await effects.once({ job: job(), lock: lock(1) }, (tx) => tx.enqueue("receipts", "send", {}));
    expect(await lab.rows("SELECT name FROM other.e_outbox")).toEqual([{ name: "send" }]);
    await lab.rows("DROP SCHEMA other CASCADE; CREATE SCHEMA other");
    await lab.rows(effects.sql());
    await effects.once({ job: job(), lock: lock(1, "a", "b") }, lab.charge);
  });
});
