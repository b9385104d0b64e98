import { Controller, Get, Injectable, NotFoundException, Param, Post } from "@nestjs/common";
import { APP_FILTER } from "@nestjs/core";
import { LockErrorFilter, Locked } from "@x/nestjs";
import { QuorumUnreachableError, Redlock } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { appWith } from "./support/app.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

@Injectable()
@Controller("accounts")
class AccountsController {
  @Post(":id/pay")
  @Locked((id: string) => `account:${id}`, { timeout: 0 })
  async pay(@Param("id") id: string): Promise<string> {
    return `paid ${id}`;
  }

  @Get(":id")
  async read(): Promise<never> {
    throw new NotFoundException("no such account");
  }
}

const metadata = { controllers: [AccountsController], providers: [{ provide: APP_FILTER, useClass: LockErrorFilter }] };

it("answers 409 while another process holds the lock, and 503 without a quorum, both with Retry-After", async () => {
  const own = await startRedis();
  onTestFinished(async () => await own.stop());
  await using app = await appWith(own, metadata);
  await app.nest.listen(0, "127.0.0.1");
  const url = await app.nest.getUrl();
  const pay = async (): Promise<readonly [number, string | null, unknown]> => {
    const response = await fetch(`${url}/accounts/42/pay`, { method: "POST" });
    return [response.status, response.headers.get("retry-after"), await response.json().catch(() => undefined)];
  };
  const other = new Redlock(own.url);
  onTestFinished(async () => await other.close());
  const lock = await other.acquire("account:42");
  const conflict = { statusCode: 409, error: "Conflict", message: "Another request or job works on this. Try again." };
  expect(await pay()).toEqual([409, "1", conflict]);
  await lock.release();
  expect((await pay())[0]).toBe(201);
  await own.stop();
  const [status, retryAfter, body] = await pay();
  expect([status, retryAfter]).toEqual([503, "1"]);
  expect(JSON.stringify(body)).not.toContain(String(own.port));
});

it("leaves other errors, and contexts other than HTTP, to Nest", async () => {
  await using app = await appWith(server, metadata);
  await app.nest.listen(0, "127.0.0.1");
  const response = await fetch(`${await app.nest.getUrl()}/accounts/42`);
  expect([response.status, response.headers.get("retry-after")]).toEqual([404, null]);
  const error = new QuorumUnreachableError({
    resources: ["a"],
    votes: [],
    attempts: 1,
    elapsedMs: 0,
    quorum: 1,
    nodeCount: 1,
  });
  const rpc = { getType: () => "rpc" } as never;
  expect(() => new LockErrorFilter().catch(error, rpc)).toThrow(error);
});
