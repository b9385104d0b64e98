/* oxlint-disable typescript/no-floating-promises -- with a callback nobody looks at the promise */
/**
 * Code as users of redlock 4 have it, with our types. It is compiled and never run; all but the imports is the
 * same in node-redlock-4-theirs.ts.
 */
import { using } from "bluebird";
// oxlint-disable-next-line import/no-named-as-default -- as in code that was written for node-redlock
import Redlock from "../../src/v4.ts";
// ---
export const said: string[] = [];
const options: Redlock.Options = { driftFactor: 0.01, retryCount: 3, retryDelay: 200, retryJitter: undefined };
const clients: ConstructorParameters<typeof Redlock>[0] = [];

class Locks extends Redlock {
  lockAll(resources: string[]): PromiseLike<Redlock.Lock> {
    return this.lock(resources, 1_000);
  }
}

export const redlock: Redlock = new Redlock(clients, options);
export const locks: Redlock = new Locks(clients);

redlock.on("clientError", (error) => said.push(error.message));
redlock.once("clientError", (error: Error) => said.push(error.message));
redlock.addListener("clientError", (error) => said.push(error.code)).removeListener("clientError", () => {});

export function isOurs(error: unknown): string {
  if (!(error instanceof Redlock.LockError)) return "other";
  const name: "LockError" = error.name;
  const attempts: number = error.attempts;
  return `${name} ${attempts} ${error.message} ${error.stack}`;
}

export const errors: Redlock.LockError[] = [new Redlock.LockError(), new Redlock.LockError("message")];

export async function withPromises(): Promise<Redlock.Lock> {
  const lock: Redlock.Lock = await redlock.lock("resource", 1_000);
  const acquired = await redlock.acquire(["one", "two"], 1_000);
  const { redlock: owner, value, expiration, attempts } = lock;
  said.push(`${value} ${expiration - Date.now()} ${attempts.toFixed()} ${[lock.resource].join()} ${owner === redlock}`);
  const longer: Redlock.Lock = await lock.extend(1_000);
  lock.expiration = Date.now();
  const done: void = await longer.unlock();
  await redlock.extend(acquired, 1_000);
  await redlock.release(acquired);
  await redlock.unlock(acquired);
  await redlock.unlock(lock).then(
    () => said.push("unlocked"),
    (error) => said.push(error.message),
  );
  const quit: PromiseLike<void> = redlock.quit();
  await quit;
  return done ?? new Redlock.Lock(redlock, "resource", "value", 0, 1);
}

const onDone: Redlock.Callback<void> = (error) => said.push(error);
const onLock: Redlock.Callback<Redlock.Lock> = (error, lock) => {
  if (error) said.push(error.message);
  else if (lock instanceof Redlock.Lock) lock.unlock(onDone);
};

export function withCallbacks(lock: Redlock.Lock): void {
  redlock.lock("resource", 1_000, onLock);
  redlock.lock("resource", 1_000, (error: Redlock.LockError | null, lock?: Redlock.Lock) => {
    if (error !== null) said.push(error.message, String(error.attempts));
    else lock?.extend(1_000, (error, longer) => said.push(error.message, String(longer?.value)));
  });
  redlock.acquire(["one", "two"], 1_000, (error, lock) => said.push(error, String(lock?.expiration)));
  redlock.extend(lock, 1_000, onLock);
  redlock.unlock(lock, onDone);
  redlock.release(lock, (error: Error) => said.push(error.message));
  redlock.quit(onDone);
}

export function withDisposer(): PromiseLike<unknown> {
  const onError = (error: Error): number => said.push(error.message);
  return using(redlock.disposer("resource", 1_000, onError), async (lock) => {
    await lock.extend(1_000);
    return lock.value;
  });
}

export const settings: number[] = [redlock.driftFactor, redlock.retryCount, redlock.retryDelay, redlock.retryJitter];
export const servers: number = redlock.servers.length;
