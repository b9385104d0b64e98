/** No line of the log, error or answer of the health check contains a password or the data of a job. */
import { Injectable, Logger } from "@nestjs/common";
import {
  CoordinationHealth,
  ExclusiveProcessor,
  ExclusiveWorkerHost,
  LeaderInterval,
  Locked,
  OnElected,
} from "@x/nestjs";
import { askWithoutRights, errorOf, placesOf, type RedisServer, startRedis } from "@x/test-support";
import { Queue } from "bullmq";
import { expect, it, onTestFinished, vi } from "vitest";
import { appWith } from "./support/app.ts";

const password = "s3cr3t-pa55word";
const card = "4111-1111-1111-1111";
const connection = { host: "127.0.0.1", port: 0, username: "app", password };

@ExclusiveProcessor("payments", { key: "account", connection, skipStalledCheck: true, drainDelay: 1 })
class PaymentsProcessor extends ExclusiveWorkerHost {
  async process(): Promise<void> {
    await Promise.reject(new Error("no"));
  }
}

@Injectable()
class PaymentsService {
  @Locked((account: string) => `account:${account}`, { timeout: 300 })
  async pay(_account: string): Promise<void> {
    await Promise.resolve();
  }

  @LeaderInterval(100)
  async poll(): Promise<void> {
    await Promise.reject(new Error("no"));
  }

  @OnElected()
  async lead(): Promise<void> {
    await Promise.reject(new Error("no"));
  }
}

it("shows no secret of a connection that is refused, lost or without rights", async () => {
  await using server = await startRedis();
  connection.port = server.port;
  await server.call("ACL", "SETUSER", "app", "on", `>${password}`, "~*", "&*", "+@all");
  const lines: unknown[] = [];
  for (const level of ["log", "warn", "error", "debug", "verbose", "fatal"] as const) {
    const spy = vi.spyOn(Logger.prototype, level).mockImplementation((...line: unknown[]) => void lines.push(line));
    onTestFinished(() => spy.mockRestore());
  }
  const warn = (warning: Error): void => void lines.push(warning);
  process.on("warning", warn);
  onTestFinished(() => void process.removeListener("warning", warn));
  const url = `redis://app:${password}@127.0.0.1:${server.port}`;
  const metadata = { providers: [PaymentsProcessor, PaymentsService] };
  const app = await appWith({ url } as RedisServer, metadata, { election: { name: "told" }, drainTimeout: 100 });
  app.get(PaymentsProcessor).worker.on("error", (error) => lines.push(error));
  const health = app.get(CoordinationHealth);
  const ask = async (): Promise<void> => {
    const asked = [
      () => app.get(PaymentsService).pay("1"),
      () => health.redlock(),
      () => health.election("told"),
      () => health.workers(),
    ];
    lines.push(await Promise.allSettled(asked.map(async (each) => await each())));
  };
  const queue = new Queue("payments", { connection: { port: server.port } });
  await queue.add("charge", { account: 1, card });
  await expect.poll(async () => await queue.getFailedCount(), { timeout: 20_000 }).toBe(1);
  await askWithoutRights(server, ask);
  expect(await errorOf(app.get(PaymentsService).pay("1"))).toBeInstanceOf(Error);
  await server.call("ACL", "SETUSER", "app", "resetpass", `>${password}`);
  // A worker that is closed leaves the timer of a connection that BullMQ is reopening.
  await queue.add("charge", { account: 2, card });
  await expect.poll(async () => await queue.getFailedCount(), { timeout: 60_000 }).toBe(2);
  await Promise.all([app[Symbol.asyncDispose](), queue.close()]);
  expect(lines.length).toBeGreaterThan(3);
  expect(await placesOf(password, lines)).toEqual([]);
  expect(await placesOf(card, lines)).toEqual([]);
});
