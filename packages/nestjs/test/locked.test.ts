import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  ForbiddenException,
  Get,
  Inject,
  Injectable,
  Module,
  Param,
  Scope,
  SetMetadata,
  UseGuards,
  UseInterceptors,
} from "@nestjs/common";
import { Reflector } from "@nestjs/core";
import { Test } from "@nestjs/testing";
import { currentLock, InjectRedlock, Locked } from "@x/nestjs";
import { LockHeldError, Redlock } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import { map, type Observable, of } from "rxjs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { appWith } from "./support/app.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

@Injectable()
class PaymentsService {
  running = 0;
  most = 0;
  readonly redlock: Redlock;

  constructor(@InjectRedlock() redlock: Redlock) {
    this.redlock = redlock;
  }

  @Locked((id: string) => `account:${id}`)
  async pay(_id: string, amount: number): Promise<{ resources: readonly string[]; amount: number; fence: number }> {
    this.running += 1;
    this.most = Math.max(this.most, this.running);
    await new Promise((resolve) => setImmediate(resolve));
    const { fencingToken, resources } = currentLock();
    this.running -= 1;
    return { resources, amount, fence: fencingToken };
  }

  @Locked((from, to) => [`account:${from}`, `account:${to}`], { timeout: 0 })
  async transfer(_from: string, _to: string): Promise<readonly string[]> {
    return currentLock().resources;
  }

  @Locked("outer")
  async outer(): Promise<readonly string[]> {
    const inner = await this.inner();
    return [...inner, ...currentLock().resources];
  }

  @Locked("inner")
  async inner(): Promise<readonly string[]> {
    return currentLock().resources;
  }

  @Locked("failing")
  async fail(): Promise<never> {
    throw new Error("the account is closed");
  }

  @Locked(() => undefined as unknown as string)
  async nameless(): Promise<void> {}

  @Locked("stream")
  async stream(): Promise<Observable<number>> {
    return of(1);
  }
}

describe("@Locked", () => {
  it("runs a method once at a time per resource, and offers the lock with its fencing token", async () => {
    await using app = await appWith(server, { providers: [PaymentsService] });
    const payments = app.get(PaymentsService);
    const paid = await Promise.all([1, 2, 3, 4, 5].map((amount) => payments.pay("7", amount)));
    expect(payments.most).toBe(1);
    expect(paid.map(({ resources }) => resources.join())).toEqual(Array.from({ length: 5 }, () => "account:7"));
    expect(paid.map(({ amount }) => amount)).toEqual([1, 2, 3, 4, 5]);
    expect(new Set(paid.map(({ fence }) => fence)).size).toBe(5);
  });

  it("locks several resources, and rejects with LockHeldError when a resource is held", async () => {
    await using app = await appWith(server, { providers: [PaymentsService] });
    const payments = app.get(PaymentsService);
    expect(await payments.transfer("1", "2")).toEqual(["account:1", "account:2"]);
    await using _held = await payments.redlock.acquire("account:2");
    await expect(payments.transfer("1", "2")).rejects.toBeInstanceOf(LockHeldError);
  });

  it("returns the innermost lock as the current lock, and throws outside", async () => {
    await using app = await appWith(server, { providers: [PaymentsService] });
    expect(await app.get(PaymentsService).outer()).toEqual(["inner", "outer"]);
    expect(() => currentLock()).toThrow("must be called inside a @Locked method");
  });

  it("rejects with the method's error, and releases the lock", async () => {
    await using app = await appWith(server, { providers: [PaymentsService] });
    const payments = app.get(PaymentsService);
    await expect(payments.fail()).rejects.toThrow("the account is closed");
    expect(await payments.redlock.inspect("failing")).toMatchObject({ verdict: "free" });
  });

  it("names class and method for an invalid resource, and refuses an Observable", async () => {
    await using app = await appWith(server, { providers: [PaymentsService] });
    const payments = app.get(PaymentsService);
    await expect(payments.nameless()).rejects.toThrow(
      "PaymentsService.nameless() is @Locked: its resource must be a string or an array of strings, got undefined",
    );
    await expect(payments.stream()).rejects.toThrow(
      "PaymentsService.stream() is @Locked: it must not return an Observable",
    );
  });

  it("works in a request-scoped provider, and in a subclass with more injections", async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Scoped {
      @Locked("scoped")
      async run(): Promise<readonly string[]> {
        return currentLock().resources;
      }
    }
    @Injectable()
    class Special extends PaymentsService {
      @Inject(Redlock) readonly other!: Redlock;
    }
    await using app = await appWith(server, { providers: [Scoped, Special] });
    expect(await (await app.resolve(Scoped)).run()).toEqual(["scoped"]);
    const special = app.get(Special);
    expect(special.other).toBe(special.redlock);
    expect(await special.inner()).toEqual(["inner"]);
  });

  it("keeps name, length and metadata of other decorators, in either order", () => {
    class Decorated {
      @SetMetadata("above", 1)
      @Locked("r")
      @SetMetadata("below", 2)
      async run(_first: string, _second: string): Promise<void> {}
    }
    const run: object & { readonly name: string; readonly length: number } = Reflect.get(Decorated.prototype, "run");
    expect([run.name, run.length]).toEqual(["run", 2]);
    expect([Reflect.getMetadata("above", run), Reflect.getMetadata("below", run)]).toEqual([1, 2]);
  });

  it("refuses everything but methods of instances, by name", () => {
    const decorate = (): unknown => {
      class Wrong {
        readonly name = "wrong";

        @Locked("r")
        static async run(): Promise<void> {}
      }
      return Wrong;
    };
    expect(decorate).toThrow("Wrong.run() must be a method of instances to be @Locked");
  });

  it("names an object that Nest did not create, and a module that is not imported", async () => {
    const alone = new PaymentsService(undefined as unknown as Redlock);
    await expect(alone.pay("1", 1)).rejects.toThrow(
      "PaymentsService.pay() is @Locked, and its object must be made by Nest",
    );

    @Module({ providers: [PaymentsService] })
    class WithoutCoordination {}
    const compiling = Test.createTestingModule({ imports: [WithoutCoordination] }).compile();
    await expect(compiling).rejects.toThrow(/can't resolve dependencies of the PaymentsService/);
  });
});

describe("@Locked on a controller", () => {
  const seen: string[] = [];

  class Guard {
    canActivate(context: ExecutionContext): boolean {
      const allowed: unknown = new Reflector().get("allowed", context.getHandler());
      seen.push(`guard ${String(allowed)}`);
      const { params } = context.switchToHttp().getRequest<{ params: { id: string } }>();
      if (params.id === "closed") throw new ForbiddenException();
      return true;
    }
  }

  class Wrap {
    intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
      return next.handle().pipe(map((body: unknown) => ({ body })));
    }
  }

  @Controller("accounts")
  class AccountsController {
    @Get(":id")
    @UseGuards(Guard)
    @Locked((id: string) => `account:${id}`)
    @UseInterceptors(Wrap)
    @SetMetadata("allowed", "yes")
    async read(@Param("id") id: string): Promise<readonly string[]> {
      seen.push(`read ${id}`);
      return currentLock().resources;
    }
  }

  it("keeps routes, guards, interceptors and parameters, and acquires no lock before the guard", async () => {
    await using app = await appWith(server, { controllers: [AccountsController] });
    await app.nest.listen(0, "127.0.0.1");
    const url = await app.nest.getUrl();
    await using _held = await app.get(Redlock).acquire("account:closed");
    expect(await (await fetch(`${url}/accounts/7`)).json()).toEqual({ body: ["account:7"] });
    expect((await fetch(`${url}/accounts/closed`)).status).toBe(403);
    expect(seen).toEqual(["guard yes", "read 7", "guard yes"]);
  });
});
