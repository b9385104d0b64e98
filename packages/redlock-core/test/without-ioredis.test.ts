import { createClient } from "redis";
import { expect, it, vi } from "vitest";
import { QuorumUnreachableError, Redlock } from "../src/index.ts";

vi.mock("ioredis", () => {
  throw new Error("Cannot find package 'ioredis'");
});

it.each(["redis://127.0.0.1:1", { port: 1 }])("%j without ioredis names the package to install", async (source) => {
  await using redlock = new Redlock(source);
  await expect(redlock.tryAcquire("r")).rejects.toThrow(QuorumUnreachableError);
  await expect(redlock.tryAcquire("r")).rejects.toThrow(
    "a URL or options need ioredis: install it, or pass a client (",
  );
});

it("a client of node-redis does not need ioredis", async () => {
  await using redlock = new Redlock(createClient({ url: "redis://127.0.0.1:1" }));
  await expect(redlock.tryAcquire("r")).rejects.toThrow("ECONNREFUSED");
});
