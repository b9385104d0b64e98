/** What a read-write lock promises, on a real node. */
import { LockHeldError } from "@x/redlock-core";
import { describe, expect, it } from "vitest";
import { ReadWriteLock } from "../src/index.ts";
import { aName, openRedlock, useServer } from "./support/redlock.ts";

const server = useServer();

function twoOf(): readonly [ReadWriteLock, ReadWriteLock] {
  const name = aName();
  return [new ReadWriteLock(openRedlock(server()), name), new ReadWriteLock(openRedlock(server()), name)];
}

describe("a read-write lock", () => {
  it("lets readers share, and keeps writers out meanwhile", async () => {
    const [here, there] = twoOf();
    const readers = [await here.read.acquire(), await there.read.acquire(), await there.read.acquire()];
    expect(await here.write.tryAcquire()).toBeNull();
    expect(await here.inspect()).toMatchObject({ readers: 3, isWriting: false });
    await Promise.all(readers.map((reader) => reader.release()));
    const writer = await here.write.tryAcquire();
    expect(writer?.isHeld()).toBe(true);
    expect(await there.read.tryAcquire()).toBeNull();
    expect(await there.write.tryAcquire()).toBeNull();
    expect(await there.inspect()).toMatchObject({ readers: 0, isWriting: true });
  });

  it("lets no reader overtake a writer that waits", async () => {
    const [here, there] = twoOf();
    const reader = await here.read.acquire();
    const order: string[] = [];
    const writing = there.write.using(() => void order.push("writer"));
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(1);
    expect(await here.read.tryAcquire()).toBeNull();
    const reading = here.read.using(() => void order.push("reader"));
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(2);
    await reader.release();
    await Promise.all([writing, reading]);
    expect(order).toEqual(["writer", "reader"]);
  });

  it("lets all readers in together who waited behind a writer", async () => {
    const [here, there] = twoOf();
    const writer = await here.write.acquire();
    const readers = [there.read.acquire(), there.read.acquire(), here.read.acquire()];
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(3);
    await writer.release();
    const held = await Promise.all(readers);
    expect(await here.inspect()).toMatchObject({ readers: 3, waiting: 0 });
    for (const reader of held) expect(reader.fencingToken).toBeGreaterThan(writer.fencingToken);
  });

  it("says who was in the way", async () => {
    const [here, there] = twoOf();
    await here.read.acquire();
    const error = await there.write.acquire({ timeout: 20 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(String(error)).toMatch(/was not free to write: 1 read,/);
  });
});
