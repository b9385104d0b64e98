/**
 * Code as users of redlock 5 have it, with our types. It is compiled and never run; all but the imports is the same in
 * node-redlock-5-theirs.ts.
 */
import Redlock, {
  type ClientExecutionResult,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  Lock,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
} from "../../src/index.ts";
// ---
export const said: string[] = [];
const clients: ConstructorParameters<typeof Redlock>[0] = [];
const settings: Partial<Settings> = { driftFactor: 0.01, retryCount: 3, retryDelay: 200, retryJitter: 200 };

export const redlock: Redlock = new Redlock(clients, { ...settings, automaticExtensionThreshold: 500 });

redlock.on("error", (error) => {
  if (error instanceof ResourceLockedError) return;
  said.push(error.message);
});

export async function votesOf(error: unknown): Promise<void> {
  if (!(error instanceof ExecutionError)) throw error;
  for (const attempt of error.attempts) {
    const { membershipSize, quorumSize, votesFor, votesAgainst }: ExecutionStats = await attempt;
    said.push(`${votesFor.size} + ${votesAgainst.size} of ${membershipSize}, ${quorumSize} needed`);
    for (const [client, refusal] of votesAgainst) said.push(client.status, refusal.message);
    for (const client of votesFor) await client.quit();
  }
}

export async function byHand(): Promise<ExecutionResult> {
  let lock: Lock = await redlock.acquire(["one", "two"], 1_000);
  lock = await lock.extend(1_000);
  lock = await redlock.extend(lock, 1_000, settings);
  const { redlock: owner, resources, value, attempts, expiration } = lock;
  said.push(...resources, value, String(attempts.length), String(expiration - Date.now()), String(owner === redlock));
  lock.expiration = 0;
  const released: ExecutionResult = await lock.release();
  const again = await redlock.release(new Lock(redlock, resources, value, [], 0), { retryCount: 0 });
  said.push(String(released.attempts.length));
  await redlock.quit();
  return again;
}

export async function byUsing(): Promise<number> {
  const routine = async (signal: RedlockAbortSignal): Promise<number> => {
    if (signal.aborted) throw signal.error;
    return 1;
  };
  const first: number = await redlock.using(["one"], 1_000, routine);
  const second = await redlock.using(["one"], 1_000, { retryCount: 5 }, async (signal) => {
    signal.throwIfAborted();
    return 2;
  });
  return first + second;
}

export function voteOf(result: ClientExecutionResult): string {
  return result.vote === "for" ? `${result.value}` : result.error.message;
}

export const facts: unknown[] = [redlock.clients.size, redlock.settings.retryCount, redlock.scripts.acquireScript.hash];
export const errors: Error[] = [new ResourceLockedError("message"), new ExecutionError("message", [])];
