import { setImmediate as immediate } from "node:timers/promises";
import { Controller, Get, Global, Inject, Injectable, Module } from "@nestjs/common";
import { Test } from "@nestjs/testing";
import type { LeaderTerm } from "@x/leader";
import { CoordinationModule, ExclusiveProcessor, ExclusiveWorkerHost, Locked, OnElected } from "@x/nestjs";
import { Redlock, RedlockClosedError } from "@x/redlock-core";
import { type Deferred, deferred } from "@x/redlock-core/kit";
import { type RedisServer, startRedis } from "@x/test-support";
import { type Job, Queue } from "bullmq";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { appWith } from "./support/app.ts";

let server: RedisServer;
let queue: Queue;
/** The events so far, in order. */
let events: string[];
/** The work continues until this promise is resolved. */
let work: Deferred<void>;
/** A `Redlock` of another application. */
let outside: Redlock;

const connection = { host: "127.0.0.1", port: 0 };

beforeAll(async () => {
  server = await startRedis();
  connection.port = server.port;
});

beforeEach(async () => {
  await server.flush();
  events = [];
  work = deferred();
  queue = new Queue("work", { connection });
  outside = new Redlock(server.url);
});

afterEach(async () => {
  work.resolve();
  await queue.close();
  await outside.close();
});

afterAll(async () => await server.stop());

@ExclusiveProcessor("work", { key: "k", resource: "key:", connection, concurrency: 1 })
class Processor extends ExclusiveWorkerHost {
  async process(job: Job<{ readonly k: string }>, _token: string | undefined, signal: AbortSignal): Promise<void> {
    events.push(`job ${job.data.k} begins`);
    signal.addEventListener("abort", () => events.push("job is asked to end"));
    await work.promise;
    events.push(`job ${job.data.k} ends`);
  }
}

@Injectable()
class Leader {
  @OnElected()
  async lead(term: LeaderTerm): Promise<void> {
    events.push("leads");
    await new Promise((resolve) => term.signal.addEventListener("abort", resolve));
    events.push("leader is asked to end");
    await work.promise;
    events.push("leader ends");
  }
}

@Controller()
class Requests {
  @Get()
  @Locked("request")
  async get(): Promise<string> {
    events.push("request begins");
    await work.promise;
    events.push("request ends");
    return "done";
  }
}

/** A module that other modules use, and that opens and closes like a database. */
@Injectable()
class Connection {
  onModuleInit(): void {
    events.push("database opens");
  }

  onApplicationBootstrap(): void {
    events.push("database is ready");
  }

  onModuleDestroy(): void {
    events.push("database closes");
  }
}

@Module({ providers: [Connection] })
class DatabaseModule {}

@Global()
@Module({ providers: [{ provide: "global", useClass: Connection }] })
class GlobalDatabaseModule {}

describe("an application", () => {
  it("begins to work when all modules are ready, and ends before they are destroyed", async () => {
    await queue.add("job", { k: "a" });
    const app = await appWith(
      server,
      { imports: [DatabaseModule, GlobalDatabaseModule], providers: [Processor, Leader] },
      { election: { name: "e" } },
    );
    await expect.poll(() => events).toContain("leads");
    await expect.poll(() => events).toContain("job a begins");
    expect(events.slice(0, 4)).toEqual(["database opens", "database opens", "database is ready", "database is ready"]);

    events.splice(0);
    const closing = app[Symbol.asyncDispose]();
    await expect.poll(() => events).toEqual(["leader is asked to end"]);
    await queue.add("job", { k: "b" });
    expect(await outside.inspect("key:a")).toMatchObject({ verdict: "held" });
    expect(await outside.inspect("leader:e")).toMatchObject({ verdict: "held" });
    work.resolve();
    await closing;
    expect(new Set(events.slice(1, 3))).toEqual(new Set(["leader ends", "job a ends"]));
    expect(events.slice(3)).toEqual(["database closes", "database closes"]);
    expect(await queue.getJobCounts("completed", "waiting", "active")).toEqual({ completed: 1, waiting: 1, active: 0 });
    for (const name of ["key:a", "leader:e"]) expect(await outside.inspect(name)).toMatchObject({ verdict: "free" });
  });

  it("answers open requests before it releases their locks and closes the Redlock", async () => {
    const app = await appWith(server, { controllers: [Requests] });
    const redlock = app.get(Redlock);
    await app.nest.listen(0, "127.0.0.1");
    const answer = fetch(await app.nest.getUrl(), { headers: { connection: "close" } }).then(
      async (response) => await response.text(),
    );
    await expect.poll(() => events).toEqual(["request begins"]);
    const closing = app[Symbol.asyncDispose]();
    await expect.poll(async () => await isListening(app.nest.getHttpServer())).toBe(false);
    expect(await outside.inspect("request")).toMatchObject({ verdict: "held" });
    work.resolve();
    expect(await answer).toBe("done");
    await closing;
    await expect(redlock.acquire("other")).rejects.toBeInstanceOf(RedlockClosedError);
  });

  it("waits for calls outside of requests and jobs", async () => {
    class Slow {
      @Locked("slow")
      async run(): Promise<void> {
        events.push("method begins");
        await work.promise;
        events.push("method ends");
      }
    }
    const app = await appWith(server, { providers: [Slow, Connection] });
    const running = app.get(Slow).run();
    await expect.poll(() => events).toContain("method begins");
    const closing = app[Symbol.asyncDispose]().then(() => events.push("closed"));
    await expect.poll(() => events).toContain("database closes");
    expect(await outside.inspect("slow")).toMatchObject({ verdict: "held" });
    expect(events).not.toContain("closed");
    work.resolve();
    await Promise.all([running, closing]);
    expect(events.slice(-2)).toEqual(["method ends", "closed"]);
  });

  it("waits no longer than drainTimeout, and keeps the locks of unfinished work", async () => {
    class Slow {
      @Locked("slow")
      async run(): Promise<void> {
        await work.promise;
        events.push("method ends");
      }
    }
    await queue.add("job", { k: "a" });
    const app = await appWith(
      server,
      { providers: [Processor, Leader, Slow] },
      { election: { name: "e", leaseDuration: 1_000 }, drainTimeout: 100 },
    );
    const redlock = app.get(Redlock);
    const running = app.get(Slow).run();
    await expect.poll(() => events).toContain("leads");
    await expect.poll(() => events).toContain("job a begins");
    await app[Symbol.asyncDispose]();
    expect(events).toContain("job is asked to end");
    for (const name of ["key:a", "slow"]) expect(await outside.inspect(name)).toMatchObject({ verdict: "held" });
    // The leader's lease is no longer renewed, so another candidate can lead within a second.
    await expect.poll(async () => (await outside.inspect("leader:e")).verdict).toBe("free");
    expect(await outside.inspect("slow")).toMatchObject({ verdict: "held" });
    work.resolve();
    await running;
    await expect.poll(async () => (await outside.inspect("key:a")).verdict).toBe("free");
    await expect
      .poll(async () => await redlock.acquire("other").catch((error: unknown) => error))
      .toBeInstanceOf(RedlockClosedError);
    expect(events).toContain("job a ends");
  });

  it("leaves a shared Redlock open", async () => {
    await using redlock = new Redlock(server.url);
    const module = await Test.createTestingModule({
      imports: [CoordinationModule.forRoot({ redlock, keepOpen: true })],
    }).compile();
    const nest = module.createNestApplication({ logger: false });
    await nest.init();
    await nest.close();
    await using lock = await redlock.acquire("still-open");
    expect(lock.isHeld()).toBe(true);
  });

  it("gets its options from a factory with injections", async () => {
    const URL_TOKEN = Symbol("url");
    @Module({ providers: [{ provide: URL_TOKEN, useFactory: () => server.url }], exports: [URL_TOKEN] })
    class ConfigModule {}
    @Injectable()
    class Service {
      @Inject(Redlock) readonly redlock!: Redlock;
    }
    const coordination = CoordinationModule.forRootAsync({
      imports: [ConfigModule],
      inject: [URL_TOKEN],
      useFactory: async (url: string) => {
        await immediate();
        return { redlock: new Redlock(url) };
      },
    });
    const module = await Test.createTestingModule({ imports: [coordination], providers: [Service] }).compile();
    const nest = module.createNestApplication({ logger: false });
    await nest.init();
    expect(await module.get(Service).redlock.tryAcquire("a")).not.toBeNull();
    await nest.close();
  });
});

async function isListening(http: { readonly listening: boolean }): Promise<boolean> {
  return http.listening;
}

describe("wrong options are refused by name", () => {
  it.each([
    [{}, "redlock must be a Redlock (of @x/redlock-core), got undefined"],
    [{ redlok: 1 }, 'unknown option "redlok": did you mean "redlock"?'],
    [{ drainTimeout: -1 }, "drainTimeout must be an integer from 0 to 86400000 (ms), got -1"],
    [{ election: "billing" }, "election must be an object, got a string of 7 characters"],
    [{ keepOpen: null }, "keepOpen must be a boolean, got null"],
  ])("%o", async (wrong, message) => {
    const options = "redlok" in wrong || Object.keys(wrong).length === 0 ? wrong : { redlock: outside, ...wrong };
    expect(() => CoordinationModule.forRoot(options as never)).toThrow(message);
    const late = CoordinationModule.forRootAsync({ useFactory: () => options as never });
    await expect(Test.createTestingModule({ imports: [late] }).compile()).rejects.toThrow(message);
  });

  it("including options of an election, of a scheduler, and of forRootAsync", async () => {
    const election = CoordinationModule.forRoot({
      redlock: outside,
      election: { name: "e", leaseDuraton: 1 } as never,
    });
    await expect(Test.createTestingModule({ imports: [election] }).compile()).rejects.toThrow(
      'unknown option "leaseDuraton": did you mean "leaseDuration"?',
    );
    const scheduler = { timezon: "UTC" } as never;
    const module = CoordinationModule.forRoot({ redlock: outside, election: { name: "e" }, scheduler });
    await expect(Test.createTestingModule({ imports: [module] }).compile()).rejects.toThrow('unknown option "timezon"');
    expect(() => CoordinationModule.forRootAsync({} as never)).toThrow("useFactory must be a function, got undefined");
  });
});
