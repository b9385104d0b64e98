/** Each protection of `@x/effects` is needed: without it a scene breaks, and with every protection no scene breaks. */
import * as effects from "@x/effects";
import { isWithoutPostgres, type PostgresServer, type RedisServer, startPostgres, startRedis } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CORE_ENTRIES, loadSources } from "../simulation/sources.ts";
import { MUTATIONS } from "./mutations.ts";
import { play, SCENES, type SceneName } from "./scenes.ts";

const names = { ...CORE_ENTRIES, "@x/effects": "effects/src/index.ts" };

describe.skipIf(isWithoutPostgres())("effects", () => {
  let servers: { readonly postgres: PostgresServer; readonly redis: RedisServer };
  beforeAll(async () => {
    const [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
    servers = { postgres, redis };
  });
  afterAll(async () => {
    await servers.postgres.stop();
    await servers.redis.stop();
  });

  it.concurrent.each(Object.keys(SCENES) as SceneName[])("keep their promise where %s", async (name) => {
    expect(await play(name, effects, servers)).toBeUndefined();
  });

  it.concurrent.each(MUTATIONS.map((mutation) => [mutation.protection, mutation] as const))(
    "break a promise without: %s",
    async (_protection, { scene, patches }) => {
      const module = await loadSources<{ effects: typeof effects }>(
        { contents: 'export * as effects from "@x/effects";', names },
        patches,
      );
      expect(await play(scene, module.effects, servers)).toMatch(/^(?:error: |[A-Za-z]*Error: )/);
    },
  );
});
