import { Injectable, Scope } from "@nestjs/common";
import { LeaderElection, type LeaderTerm } from "@x/leader";
import { LeaderScheduler, type Tick } from "@x/leader/scheduler";
import { currentLock, InjectElection, InjectScheduler, LeaderCron, LeaderInterval, Locked, OnElected } from "@x/nestjs";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { appWith } from "./support/app.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

beforeEach(async () => await server.flush());

afterAll(async () => await server.stop());

const election = { name: "billing", leaseDuration: 4_000 };

@Injectable()
class BillingService {
  readonly ticks: Tick[] = [];
  readonly polls: Tick[] = [];
  readonly terms: LeaderTerm[] = [];
  @InjectElection() readonly election!: LeaderElection | null;
  @InjectScheduler() readonly scheduler!: LeaderScheduler | null;

  @LeaderCron("* * * * * *", { name: "each-second", catchup: "all", overlap: "allowAll" })
  onTick(tick: Tick): void {
    this.ticks.push(tick);
  }

  @LeaderInterval(100)
  async poll(tick: Tick): Promise<void> {
    this.polls.push(tick);
  }

  @OnElected()
  async lead(term: LeaderTerm): Promise<void> {
    this.terms.push(term);
  }
}

describe("@LeaderCron, @LeaderInterval and @OnElected", () => {
  it("run on one of two applications, and on the second when the first is closed", async () => {
    const apps = await Promise.all([1, 2].map(() => appWith(server, { providers: [BillingService] }, { election })));
    const services = apps.map((app) => app.get(BillingService));
    await expect.poll(() => services.filter(({ terms }) => terms.length > 0).length).toBe(1);
    const leads = services.findIndex(({ terms }) => terms.length > 0);
    const [leader, follower] = [services[leads], services[1 - leads]];
    await expect.poll(() => leader?.ticks.length).toBeGreaterThan(0);
    await expect.poll(() => leader?.polls.length).toBeGreaterThan(2);
    expect([follower?.ticks.length, follower?.polls.length]).toEqual([0, 0]);

    await apps[leads]?.[Symbol.asyncDispose]();
    await expect.poll(() => follower?.ticks.length).toBeGreaterThan(0);
    await expect.poll(() => follower?.polls.length).toBeGreaterThan(0);
    const ids = services.flatMap(({ ticks }) => ticks.map(({ id }) => id));
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.every((id) => id.startsWith("each-second@"))).toBe(true);
    expect(follower?.polls.every(({ schedule }) => schedule === "BillingService.poll")).toBe(true);
    expect(follower?.scheduler).toBe(apps[1 - leads]?.get(LeaderScheduler));
    expect(follower?.election).toBe(apps[1 - leads]?.get(LeaderElection));
    await apps[1 - leads]?.[Symbol.asyncDispose]();
  });

  it("go with @Locked on the same method, in either order", async () => {
    class Both {
      readonly ran: string[] = [];

      @LeaderInterval(50, { name: "above" })
      @Locked("one")
      async above(tick: Tick): Promise<void> {
        this.ran.push(`${tick.schedule} ${currentLock().resources[0]}`);
      }

      @Locked("two")
      @LeaderInterval(50, { name: "below" })
      async below(tick: Tick): Promise<void> {
        this.ran.push(`${tick.schedule} ${currentLock().resources[0]}`);
      }
    }
    await using app = await appWith(server, { providers: [Both] }, { election });
    const { ran } = app.get(Both);
    await expect.poll(() => new Set(ran)).toEqual(new Set(["above one", "below two"]));
  });

  it("run once for an object with two names", async () => {
    const ALIAS = Symbol("alias");
    await using app = await appWith(
      server,
      { providers: [BillingService, { provide: ALIAS, useExisting: BillingService }] },
      { election },
    );
    await expect.poll(() => app.get(BillingService).terms.length).toBe(1);
  });
});

describe("@OnElected", () => {
  it("keeps the leadership until the method has ended", async () => {
    const events: string[] = [];
    class Worker {
      @OnElected()
      async lead(term: LeaderTerm): Promise<void> {
        events.push("began");
        await new Promise((resolve) => term.signal.addEventListener("abort", resolve));
        await new Promise((resolve) => setImmediate(resolve));
        events.push(`ended, still leading: ${term.isCurrent()}`);
      }
    }
    {
      await using _app = await appWith(server, { providers: [Worker] }, { election });
      await expect.poll(() => events).toEqual(["began"]);
    }
    expect(events).toEqual(["began", "ended, still leading: true"]);
  });

  it("hands over after a failure, once the other methods have ended", async () => {
    const events: string[] = [];
    class Failing {
      @OnElected()
      async fail(): Promise<void> {
        events.push("fails");
        throw new Error("cannot lead");
      }

      @OnElected()
      async work(term: LeaderTerm): Promise<void> {
        await new Promise((resolve) => term.signal.addEventListener("abort", resolve));
        events.push(`ended, still leading: ${term.isCurrent()}`);
      }
    }
    const cooldown = { initial: 60_000 };
    await using failing = await appWith(server, { providers: [Failing] }, { election: { ...election, cooldown } });
    await expect.poll(() => events).toEqual(["fails", "ended, still leading: true"]);
    await using other = await appWith(server, { providers: [BillingService] }, { election });
    await expect.poll(() => other.get(BillingService).terms.length).toBe(1);
    expect(failing.get(LeaderElection).isLeader()).toBe(false);
  });
});

describe("a wrong decorator stops the application at its start with an error that names it", () => {
  it("a bad expression, and an unknown option", async () => {
    class Bad {
      @LeaderCron("61 * * * *")
      run(): void {}
    }
    class Misspelt {
      @LeaderInterval(1_000, { catchUp: "all" } as never)
      run(): void {}
    }
    await expect(appWith(server, { providers: [Bad] }, { election })).rejects.toThrow(/^Bad\.run\(\): /);
    await expect(appWith(server, { providers: [Misspelt] }, { election })).rejects.toThrow(
      'Misspelt.run(): unknown option "catchUp": did you mean "catchup"?',
    );
  });

  it("the same name for two methods", async () => {
    class Twice {
      @LeaderCron("@daily", { name: "nightly" })
      one(): void {}

      @LeaderCron("@daily", { name: "nightly" })
      two(): void {}
    }
    await expect(appWith(server, { providers: [Twice] }, { election })).rejects.toThrow(
      'Twice.two(): name must be new to this scheduler, got "nightly"',
    );
  });

  it("a method of a request-scoped or transient provider, directly or by injection", async () => {
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest {
      @LeaderCron("@daily")
      run(): void {}
    }
    @Injectable({ scope: Scope.TRANSIENT })
    class Transient {
      @OnElected()
      run(): void {}
    }
    await expect(appWith(server, { providers: [PerRequest] }, { election })).rejects.toThrow(
      "PerRequest.run() is @LeaderCron or @LeaderInterval, but PerRequest is request-scoped, itself or through an injected dependency",
    );
    await expect(appWith(server, { providers: [Transient] }, { election })).rejects.toThrow(
      "Transient.run() is @OnElected, but Transient is transient",
    );
  });

  it("a schedule without an election", async () => {
    await expect(appWith(server, { providers: [BillingService] })).rejects.toThrow(
      "BillingService.onTick() needs the option election of CoordinationModule, got undefined",
    );
  });

  it("a second schedule of a method, and a static method", () => {
    const twice = (): unknown => {
      class Twice {
        @LeaderCron("@daily")
        @LeaderInterval(1_000)
        run(): void {}
      }
      return Twice;
    };
    const fixed = (): unknown => {
      class Fixed {
        readonly name = "fixed";

        @OnElected()
        static run(): void {}
      }
      return Fixed;
    };
    expect(twice).toThrow("Twice.run() must have one schedule, got a second one");
    expect(fixed).toThrow("Fixed.run() must be a method of instances to be @OnElected");
  });
});
