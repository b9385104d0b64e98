/** A real Nest application on a real Redis. */
import type { INestApplication, ModuleMetadata, Type } from "@nestjs/common";
import { Test } from "@nestjs/testing";
import { CoordinationModule, type CoordinationOptions } from "@x/nestjs";
import { Redlock } from "@x/redlock-core";
import type { RedisServer } from "@x/test-support";

export interface App extends AsyncDisposable {
  readonly nest: INestApplication;
  readonly get: <Found>(token: Type<Found>) => Found;
  readonly resolve: <Found>(token: Type<Found>) => Promise<Found>;
}

/** Starts an application; leaving the scope closes it. */
export async function appWith(
  server: RedisServer,
  metadata: ModuleMetadata,
  options: Omit<CoordinationOptions, "redlock"> = {},
): Promise<App> {
  const redlock = new Redlock(server.url);
  try {
    const testing = await Test.createTestingModule({
      ...metadata,
      imports: [CoordinationModule.forRoot({ redlock, ...options }), ...(metadata.imports ?? [])],
    }).compile();
    const nest = testing.createNestApplication({ logger: ["fatal"] });
    try {
      await nest.init();
    } catch (error) {
      await nest.close();
      throw error;
    }
    return {
      nest,
      get: (token) => nest.get(token, { strict: false }),
      resolve: async (token) => await nest.resolve(token, undefined, { strict: false }),
      [Symbol.asyncDispose]: async () => await nest.close(),
    };
  } catch (error) {
    await redlock.close();
    throw error;
  }
}
