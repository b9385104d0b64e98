import { Controller, Get, Inject } from "@nestjs/common";
import { HealthCheck, HealthCheckService, TerminusModule } from "@nestjs/terminus";
import { LeaderElection } from "@x/leader";
import { CoordinationHealth, ExclusiveProcessor, ExclusiveWorkerHost } from "@x/nestjs";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, expect, it } from "vitest";
import { appWith } from "./support/app.ts";

let server: RedisServer;

const connection = { host: "127.0.0.1", port: 0 };

beforeAll(async () => {
  server = await startRedis();
  connection.port = server.port;
});

afterAll(async () => await server.stop());

@ExclusiveProcessor("work", { key: "k", connection })
class Processor extends ExclusiveWorkerHost {
  async process(): Promise<void> {}
}

@Controller("readyz")
class HealthController {
  @Inject(HealthCheckService) readonly health!: HealthCheckService;
  @Inject(CoordinationHealth) readonly coordination!: CoordinationHealth;

  @Get()
  @HealthCheck()
  async check(): Promise<unknown> {
    return await this.health.check([
      () => this.coordination.redlock(),
      () => this.coordination.election("billing"),
      () => this.coordination.workers(),
    ]);
  }
}

const metadata = {
  imports: [TerminusModule.forRoot({ logger: false })],
  controllers: [HealthController],
  providers: [Processor],
};

it("is up for Terminus while the application works, even if it does not lead", async () => {
  const options = { election: { name: "health" } };
  await using one = await appWith(server, metadata, options);
  await using two = await appWith(server, metadata, options);
  for (const { nest } of [one, two]) {
    await nest.listen(0, "127.0.0.1");
    const response = await fetch(`${await nest.getUrl()}/readyz`);
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({
      status: "ok",
      details: {
        redlock: { status: "up", nodes: 1, answering: 1, quarantineLeftMs: 0 },
        billing: { status: "up", overrunMs: 0 },
        workers: { status: "up", workers: 1, stopped: [] },
      },
    });
  }
});

it("names the part that is down", async () => {
  const ownServer = await startRedis();
  await using app = await appWith(ownServer, metadata, { election: { name: "health" } });
  await app.nest.listen(0, "127.0.0.1");
  const url = `${await app.nest.getUrl()}/readyz`;
  await app.get(Processor).worker.close();
  expect(await (await fetch(url)).json()).toMatchObject({
    status: "error",
    error: {
      workers: {
        status: "down",
        stopped: ["work"],
        message: "no worker that can write to its Redis runs here for the queue work",
      },
    },
  });
  await ownServer.stop();
  const response = await fetch(url);
  expect(response.status).toBe(503);
  const message = "0 of 1 lock nodes answer, 1 are needed";
  expect(await response.json()).toMatchObject({ error: { redlock: { status: "down", answering: 0, message } } });
});

it("is down when the process takes no part in the election any more", async () => {
  await using app = await appWith(server, {}, { election: { name: "stopped" } });
  const health = app.get(CoordinationHealth);
  expect(health.election()).toMatchObject({ election: { status: "up" } });
  await app.get(LeaderElection).stop({ drainTimeout: 0 });
  const message = "this process takes no part in the election";
  expect(health.election()).toMatchObject({ election: { status: "down", message } });
});

it("is down without an election, and when the Redlock is closed", async () => {
  const app = await appWith(server, {});
  const health = app.get(CoordinationHealth);
  expect(health.election()).toEqual({ election: { status: "down", message: "no election" } });
  await app[Symbol.asyncDispose]();
  expect(await health.redlock("locks")).toMatchObject({ locks: { status: "down" } });
});
