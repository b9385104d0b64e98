import { Logger } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { LeaderElection } from "@x/leader";
import { CoordinationModule } from "@x/nestjs";
import { logTo, Redlock } from "@x/redlock-core";
import { pinoLines, startRedis } from "@x/test-support";
import { expect, it, onTestFinished } from "vitest";
import { logLine } from "../src/rules/log-line.ts";

it("describes an event in one sentence, with its facts and the message of an error", () => {
  const own = { event: "x.leader.elected", election: "billing", candidate: "vm/1" };
  expect(logLine({ ...own, term: 5 }, "elected leader")).toBe(
    "elected leader: election billing, candidate vm/1, term 5",
  );
  expect(logLine({ ...own, reason: "resigned", heldMs: 1559.543032999999 }, "leadership ended")).toBe(
    "leadership ended: election billing, candidate vm/1, reason resigned, held 1560 ms",
  );
  expect(logLine({ node: "redis-1:6379", err: new Error("connect ECONNREFUSED") }, "lock node is down")).toBe(
    "lock node is down: node redis-1:6379: connect ECONNREFUSED",
  );
  expect(logLine({ quarantineLeftMs: 3_000, value: undefined }, "waits")).toBe("waits: quarantine left 3000 ms");
  expect(logLine({ err: "no error" }, "task failed")).toBe("task failed: err no error");
  expect(logLine({ resource: ["a", "b"], votes: [{ node: "n" }] }, "lock lost")).toBe("lock lost: resource a,b");
});

/** Runs an application whose task fails. Returns the lines of Nest's log that are about it. */
async function linesOfNest(failure: Error): Promise<readonly unknown[][]> {
  const lines: unknown[][] = [];
  const write = (...line: unknown[]): void => void lines.push(line);
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const redlock = new Redlock(server.url, { quarantine: false });
  const root = CoordinationModule.forRoot({ redlock, election: { name: "lines", id: "vm/1" } });
  const app = await NestFactory.createApplicationContext(root, { logger: { log: write, warn: write, error: write } });
  onTestFinished(() => Logger.overrideLogger(["fatal"]));
  await app.init();
  const election = new LeaderElection(redlock, { name: "failing", id: "vm/1" });
  await election.run(() => Promise.reject(failure), { signal: AbortSignal.timeout(1_000) }).catch(() => undefined);
  await app.close();
  const count = lines.length;
  await using other = new Redlock(server.url, { quarantine: false });
  await new LeaderElection(other, { name: "after" }).tryCampaign();
  expect(lines).toHaveLength(count);
  return lines.filter((line) => line.at(-1) === "Coordination");
}

it("writes lines to Nest's log while the application runs, as sentences", async () => {
  const failure = new Error("no paper");
  const lines = await linesOfNest(failure);
  expect(lines.map(([line]) => typeof line)).toEqual(lines.map(() => "string"));
  const texts = lines.map(([line]) => String(line));
  expect(texts).toContainEqual(expect.stringMatching(/^elected leader: election failing, candidate vm\/1, term \d+, /));
  expect(texts).toContainEqual(expect.stringMatching(/^leadership ended: .*, held \d+ ms/));
  expect(texts.filter((text) => text.startsWith("lock acquired"))).toEqual([]);
  const failed = lines.find(([line]) => String(line).startsWith("task failed"));
  expect(failed).toEqual([expect.stringMatching(/: no paper$/), failure.stack, "Coordination"]);
});

it("leaves Nest's log alone if the process logs with a logger of its own", async () => {
  const { logger, lines } = pinoLines("info");
  onTestFinished(logTo(logger));
  expect(await linesOfNest(new Error("no paper"))).toEqual([]);
  expect(lines.map(({ event }) => event)).toContain("x.leader.taskFailed");
});
