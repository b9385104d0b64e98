/** Effects behind PgBouncer in transaction mode, where each transaction may have another session. */
import * as effects from "@x/effects";
import { isWithoutPostgres, type PostgresServer, type RedisServer, startPostgres, startRedis } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isWithoutPgbouncer, type Pgbouncer, startPgbouncer } from "./pgbouncer.ts";
import { play, type SceneName } from "./scenes.ts";

const NAMES: readonly SceneName[] = [
  "a job is executed twice",
  "a transaction depends on one that commits before it",
  "Redis loses its data",
  "holders claim in opposite order",
];

describe.skipIf(isWithoutPostgres() || isWithoutPgbouncer())("effects behind PgBouncer", () => {
  let postgres: PostgresServer;
  let redis: RedisServer;
  let pgbouncer: Pgbouncer;
  beforeAll(async () => {
    [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
    pgbouncer = await startPgbouncer(postgres, 8);
  });
  afterAll(async () => {
    await pgbouncer.stop();
    await postgres.stop();
    await redis.stop();
  });

  it.each(NAMES)("keep their promise where %s", async (name) => {
    const behind = { port: pgbouncer.port, user: postgres.user, database: postgres.database };
    expect(await play(name, effects, { postgres: behind, redis })).toBeUndefined();
  });
});
