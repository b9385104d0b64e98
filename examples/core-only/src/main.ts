/** Two "processes" that share a counter file, with nothing installed but `@x/redlock-core` and a Redis client. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { LockHeldError, Redlock } from "@x/redlock-core";

export interface Outcome {
  readonly counted: number;
  readonly expected: number;
  readonly tokensIncrease: boolean;
  readonly secondTry: string;
}

export async function run(redisUrl: string, increments = 20): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), "core-only-"));
  const file = join(folder, "counter");
  await writeFile(file, "0");
  await using first = new Redlock(redisUrl, { ttl: 5_000 });
  await using second = new Redlock(redisUrl, { ttl: 5_000 });
  const tokens: number[] = [];

  /** Read, think, write: without the lock, increments are lost. */
  const increment = async (redlock: Redlock): Promise<void> => {
    await redlock.using("counter", async (lock) => {
      const before = Number(await readFile(file, "utf8"));
      await delay(1);
      lock.assertHeld(); // right before the side effect
      await writeFile(file, String(before + 1));
      tokens.push(lock.fencingToken);
    });
  };

  try {
    await Promise.all(
      Array.from({ length: increments }, async (_, i) => await increment(i % 2 === 0 ? first : second)),
    );
    await using _held = await first.acquire("counter");
    const secondTry = await second.acquire("counter", { timeout: 50 }).then(
      () => "acquired",
      (error: unknown) => (error instanceof LockHeldError ? error.code : String(error)),
    );
    const tokensIncrease = tokens.every((token, i) => i === 0 || token > (tokens[i - 1] ?? 0));
    return { counted: Number(await readFile(file, "utf8")), expected: increments, tokensIncrease, secondTry };
  } finally {
    await rm(folder, { recursive: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const outcome = await run(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379");
  process.stdout.write(`${JSON.stringify(outcome, null, 2)}\n`);
}
