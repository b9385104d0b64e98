import { Logger } from "@nestjs/common";
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { startRedis } from "@x/test-support";
import { expect, it, onTestFinished } from "vitest";
import { nestLogger } from "../src/leader/leadership.ts";
import { logLine } from "../src/rules/log-line.ts";

it("describes an event in one sentence, with its facts and the message of an error", () => {
  const own = { election: "billing", id: "vm/1" };
  expect(logLine({ ...own, term: 5 }, "elected leader")).toBe("elected leader: election billing, id vm/1, term 5");
  expect(logLine({ ...own, reason: "resigned", heldMs: 1559.543032999999 }, "leadership ended")).toBe(
    "leadership ended: election billing, id vm/1, reason resigned, held 1560 ms",
  );
  expect(logLine({ node: "redis-1:6379", err: new Error("connect ECONNREFUSED") }, "lock node is down")).toBe(
    "lock node is down: node redis-1:6379: connect ECONNREFUSED",
  );
  expect(logLine({ quarantineLeftMs: 3_000, value: undefined }, "waits")).toBe("waits: quarantine left 3000 ms");
  expect(logLine({ err: "no error" }, "task failed")).toBe("task failed: err no error");
});

it("writes lines to Nest's log, not objects", async () => {
  const lines: unknown[][] = [];
  const write = (...line: unknown[]): void => void lines.push(line);
  Logger.overrideLogger({ log: write, warn: write, error: write });
  onTestFinished(() => Logger.overrideLogger(["fatal"]));
  const server = await startRedis();
  onTestFinished(async () => await server.stop());
  const redlock = new Redlock(server.url, { quarantine: false });
  onTestFinished(async () => await redlock.close());
  const election = new LeaderElection(redlock, { name: "lines", id: "vm/1", logger: nestLogger });
  const failure = new Error("no paper");
  await election.run(() => Promise.reject(failure), { signal: AbortSignal.timeout(1_000) }).catch(() => undefined);
  expect(lines.map(([line]) => typeof line)).toEqual(lines.map(() => "string"));
  const texts = lines.map(([line]) => String(line));
  expect(texts).toContainEqual(expect.stringMatching(/^elected leader: election lines, id vm\/1, term \d+$/));
  expect(texts).toContainEqual(expect.stringMatching(/^leadership ended: .*, held \d+ ms$/));
  const failed = lines.find(([line]) => String(line).startsWith("task failed"));
  expect(failed).toEqual([expect.stringMatching(/: no paper$/), failure.stack, "Leader"]);
});
