import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type HealthHandlerOptions, healthHandler } from "@x/leader";
import { describe, expect, it, onTestFinished } from "vitest";
import { untilAborted, useLab } from "./support/lab.ts";

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

describe("healthHandler", () => {
  const lab = useLab();

  async function served(options: HealthHandlerOptions): Promise<(path: string, method?: string) => Promise<Answer>> {
    const server = createServer(healthHandler(options));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => new Promise<void>((resolve) => void server.close(() => resolve())));
    const { port } = server.address() as AddressInfo;
    return async (path, method = "GET") => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers: { connection: "close" } });
      return { status: response.status, body: method === "HEAD" ? await response.text() : await response.json() };
    };
  }

  it("is live from the start, and ready while each election takes part, leading or not", async () => {
    const [one, two] = [lab.candidate("health"), lab.candidate("health")];
    const ask = await served({ elections: [two] });
    expect(await ask("/livez")).toMatchObject({ status: 200 });
    expect(await ask("/readyz")).toMatchObject({ status: 503, body: { problems: ["health: run() was not called"] } });
    void one.run(untilAborted);
    await expect.poll(() => one.isLeader(), { timeout: 20_000 }).toBe(true);
    void two.run(untilAborted);
    const follows = { election: "health", healthy: true, running: true, state: expect.any(String), overrunMs: 0 };
    await expect
      .poll(() => ask("/readyz"), { timeout: 20_000 })
      .toEqual({ status: 200, body: { problems: [], elections: [follows], workers: [] } });
    await two.stop();
    const stopped = { status: 503, body: { problems: ["health: the election was stopped"] } };
    expect(await ask("/readyz")).toMatchObject(stopped);
    expect(await ask("/livez")).toMatchObject(stopped);
  });

  it("is neither live nor ready while a task runs on without its lease", async () => {
    const election = lab.candidate("overrun");
    const ask = await served({ elections: [election] });
    let end = (): void => undefined;
    void election.run(() => new Promise<void>((resolve) => (end = resolve)), { drainTimeout: 0 });
    await expect.poll(() => election.isLeader(), { timeout: 20_000 }).toBe(true);
    await lab.nodes.redlock({ nodeTimeout: 5_000 }).forceRelease("leader:overrun");
    await expect.poll(() => ask("/livez"), { timeout: 20_000 }).toMatchObject({ status: 503 });
    const problem = expect.stringMatching(/^overrun: the task runs on without its lease, for \d+ ms$/) as string;
    expect(await ask("/readyz")).toMatchObject({ status: 503, body: { problems: [problem] } });
    end();
    await expect.poll(() => ask("/livez"), { timeout: 20_000 }).toMatchObject({ status: 200 });
  });

  it("is ready only while each worker runs, and live regardless", async () => {
    let isRunning = false;
    const ask = await served({ workers: [{ name: "payments", isRunning: () => isRunning }] });
    expect(await ask("/readyz?full")).toEqual({
      status: 503,
      body: {
        problems: ["payments: the worker does not run, or cannot write to its Redis"],
        elections: [],
        workers: [{ queue: "payments", running: false }],
      },
    });
    expect(await ask("/livez")).toMatchObject({ status: 200 });
    isRunning = true;
    expect(await ask("/readyz", "HEAD")).toEqual({ status: 200, body: "" });
  });

  it("answers no other path and no other method", async () => {
    const ask = await served({});
    expect(await ask("/")).toMatchObject({ status: 404 });
    expect(await ask("/livez", "POST")).toMatchObject({ status: 405 });
  });
});
