/** A connection that is lost around COMMIT, in four ways: each outcome is reported correctly. */
import { Effects, OutcomeUnknownError } from "@x/effects";
import {
  type CommitFault,
  errorOf,
  isWithoutPostgres,
  type PostgresServer,
  startCommitProxy,
  startPostgres,
} from "@x/test-support";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { job, Lab, lock } from "./support/lab.ts";

const FAULTS: readonly CommitFault[] = ["before", "after", "slow", "late"];

describe.skipIf(isWithoutPostgres())("a lost connection", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(async () => await server.stop());

  function poolAt(port: number): pg.Pool {
    const pool = new pg.Pool({ host: "127.0.0.1", port, user: server.user, database: server.database, max: 6 });
    pool.on("error", () => undefined);
    return pool;
  }

  it.each(FAULTS)("%s COMMIT has no effect twice, and once() reports no effect wrongly", async (fault) => {
    await using lab = await Lab.open(server);
    await using proxy = await startCommitProxy(server.port, (commits) => (commits % 3 === 0 ? fault : "pass"));
    const pool = poolAt(proxy.port);
    const effects = lab.effectsWith({ retries: 10 }, pool);
    await lab.rows(`CREATE TABLE ${lab.prefix}log (job text)`);
    const run = async (name: string): Promise<unknown> =>
      await effects.once({ key: name, lock: lock(1, `of ${name.slice(0, 1)}`) }, async (tx) => {
        await tx.query(`INSERT INTO ${lab.prefix}log VALUES ($1)`, [name]);
        return name;
      });
    const lines = ["a", "b", "c", "d"].map(async (line) => {
      for (let index = 0; index < 8; index += 1) expect(await run(`${line}${index}`)).toBe(`${line}${index}`);
    });
    await Promise.all(lines);
    const [row] = await lab.rows(`SELECT count(*)::int AS n, count(DISTINCT job)::int AS jobs FROM ${lab.prefix}log`);
    expect(row).toEqual({ n: 32, jobs: 32 });
    await pool.end();
  });

  it.each(FAULTS)("%s COMMIT is settled by the server's answer in transaction()", async (fault) => {
    await using lab = await Lab.open(server);
    await using proxy = await startCommitProxy(server.port, (commits) => (commits % 2 === 0 ? fault : "pass"));
    const pool = poolAt(proxy.port);
    const effects = lab.effectsWith({}, pool);
    const reported: string[] = [];
    for (let index = 0; index < 10; index += 1) {
      const done = effects.transaction(async (tx) => {
        await lab.charge(tx);
        tx.enqueue("receipts", `${index}`, {});
      });
      await done.then(
        () => reported.push(`${index}`),
        () => undefined,
      );
    }
    expect(await lab.outbox()).toEqual(reported);
    expect(await lab.charges()).toBe(reported.length);
    expect(reported.length).toBe(fault === "before" ? 5 : 10);
    await pool.end();
  });

  it("before the first statement rejects with the client's error once the retries are over", async () => {
    await using lab = await Lab.open(server);
    await using proxy = await startCommitProxy(server.port, () => "pass");
    proxy.isRefusing = true;
    const pool = poolAt(proxy.port);
    const failed = lab.effectsWith({ retries: 2 }, pool).once({ job: job() }, lab.charge);
    expect(await errorOf(failed)).not.toBeInstanceOf(OutcomeUnknownError);
    await pool.end();
  });

  it("during COMMIT is an OutcomeUnknownError if the server stays away, and a later call learns the outcome", async () => {
    await using lab = await Lab.open(server);
    await using proxy = await startCommitProxy(server.port, () => {
      proxy.isRefusing = true;
      return "after";
    });
    const pool = poolAt(proxy.port);
    const effects = lab.effectsWith({ retries: 2 }, pool);
    const execution = job("a");
    const unknown = await errorOf(effects.once({ job: execution, lock: lock(1) }, lab.charge));
    expect(unknown).toBeInstanceOf(OutcomeUnknownError);
    expect(unknown).toMatchObject({ code: "OUTCOME_UNKNOWN", id: '["job","bull:payments","a",1]' });
    const plain = await errorOf(lab.effectsWith({ retries: 1 }, pool).transaction(lab.charge));
    expect(plain).not.toBeInstanceOf(OutcomeUnknownError);
    await pool.end();
    expect(await lab.effects.once({ job: execution, lock: lock(2) }, () => "again")).toEqual({ charged: true });
    expect(await lab.charges()).toBe(1);
  });

  it("during COMMIT of transaction() is an OutcomeUnknownError if the server stays away", async () => {
    await using lab = await Lab.open(server);
    await using proxy = await startCommitProxy(server.port, () => {
      proxy.isRefusing = true;
      return "after";
    });
    const pool = poolAt(proxy.port);
    const unknown = await errorOf(lab.effectsWith({ retries: 1 }, pool).transaction(lab.charge));
    expect(unknown).toMatchObject({ code: "OUTCOME_UNKNOWN", id: undefined });
    expect(await lab.charges()).toBe(1);
    await pool.end();
  });

  it("because of a restart of the server is waited for", async () => {
    await using own = await startPostgres();
    await using lab = await Lab.open(own);
    const effects: Effects = lab.effectsWith({ retries: 20 });
    let runs = 0;
    const result = await effects.once({ job: job(), lock: lock(1) }, async (tx) => {
      await lab.charge(tx);
      if (runs++ === 0) {
        await own.shutDown();
        void own.start();
      }
      return await lab.charge(tx);
    });
    expect([result, runs]).toEqual([{ charged: true }, 2]);
    expect(await lab.charges()).toBe(2);
  });
});
