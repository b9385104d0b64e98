import { type RedisServer, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { depart, emptyBoard } from "../src/board.ts";
import { BoardStore, type Run, StaleTokenError } from "../src/board-store.ts";
import { Cursor, DeposedError } from "../src/cursor.ts";
import type { Flight } from "../src/flight.ts";

let server: RedisServer;
let redis: Redis;
let store: BoardStore;
let cursor: Cursor;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis({ path: server.path });
});

beforeEach(async () => {
  await redis.flushall();
  store = new BoardStore(redis, "run-1:");
  cursor = new Cursor(redis, "run-1:");
});

afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

const flight = (index: number): Flight => ({
  index,
  date: "2001-01-01T06:20",
  origin: "BNA",
  destination: "MCI",
  distanceMiles: 491,
  delayMinutes: index,
});
const run = (id: string, fencingToken?: number): Run => ({ id, worker: "worker-1", fencingToken });
// A token as the lock gives them: microseconds of a wall clock.
const token = 1_790_000_000_000_000;

it("stores a board and hands it to the next run", async () => {
  const first = await store.begin(flight(0), run("a", token));
  expect(first).toEqual(emptyBoard);
  expect(await store.write(flight(0), run("a", token), depart(first, flight(0)))).toBe("written");
  expect(await store.begin(flight(1), run("b", token + 1))).toEqual(depart(emptyBoard, flight(0)));
  expect(await store.boards(["BNA", "MCI"])).toEqual(new Map([["BNA", depart(emptyBoard, flight(0))]]));
});

it("refuses a write with an older token than the last read's, even before the newer run has written", async () => {
  await store.begin(flight(0), run("old", token));
  await store.begin(flight(0), run("new", token + 1));
  await expect(store.write(flight(0), run("old", token), emptyBoard)).rejects.toThrow(StaleTokenError);
  expect(await store.boards(["BNA"])).toEqual(new Map());
  expect(await store.write(flight(0), run("new", token + 1), depart(emptyBoard, flight(0)))).toBe("written");
});

it("refuses a read with an old token", async () => {
  await store.begin(flight(1), run("new", token + 1));
  await expect(store.begin(flight(0), run("old", token))).rejects.toThrow(StaleTokenError);
});

it("puts a flight on a board once, however often its job runs", async () => {
  await store.begin(flight(0), run("a", token));
  await store.write(flight(0), run("a", token), depart(emptyBoard, flight(0)));
  const board = await store.begin(flight(0), run("again", token + 1));
  expect(await store.write(flight(0), run("again", token + 1), depart(board, flight(0)))).toBe("repeated");
  expect(await store.boards(["BNA"])).toEqual(new Map([["BNA", depart(emptyBoard, flight(0))]]));
});

it("refuses nothing without tokens: the last write wins", async () => {
  await store.begin(flight(0), run("a"));
  await store.begin(flight(1), run("b"));
  await store.write(flight(1), run("b"), depart(emptyBoard, flight(1)));
  expect(await store.write(flight(0), run("a"), depart(emptyBoard, flight(0)))).toBe("written");
  expect(await store.boards(["BNA"])).toEqual(new Map([["BNA", depart(emptyBoard, flight(0))]]));
});

it("records what happened in order, with token, worker and the store's time", async () => {
  await store.begin(flight(0), run("a", token));
  await store.begin(flight(0), run("b", token + 1));
  await expect(store.write(flight(0), run("a", token), emptyBoard)).rejects.toThrow(StaleTokenError);
  await store.write(flight(0), run("b", token + 1), emptyBoard);
  const events = await store.history(0);
  expect(events.map((event) => `${event.kind} ${event.run}`)).toEqual(["begin a", "begin b", "stale a", "written b"]);
  expect(events[3]).toMatchObject({ flight: 0, origin: "BNA", fencingToken: token + 1, worker: "worker-1" });
  const [seconds] = await redis.time();
  expect(Math.abs((events[3]?.atMs ?? 0) / 1000 - Number(seconds))).toBeLessThan(60);
  expect(await store.history(3)).toEqual(events.slice(3));
});

it("moves the cursor for the latest term only", async () => {
  expect(await cursor.claim(token, "scheduler-1")).toBe(0);
  await cursor.move(token, 250);
  expect(await cursor.claim(token + 1, "scheduler-2")).toBe(250);
  await expect(cursor.move(token, 500)).rejects.toThrow(DeposedError);
  await expect(cursor.claim(token, "scheduler-1")).rejects.toThrow(DeposedError);
  await cursor.move(token + 1, 500);
  expect(await cursor.state()).toEqual({ term: token + 1, leader: "scheduler-2", next: 500, refused: 1 });
});

it("lists the leaderships in order, one per term", async () => {
  await cursor.claim(1, "scheduler-1");
  await cursor.claim(1, "scheduler-1");
  await cursor.claim(2, "scheduler-3");
  expect((await cursor.leaderships()).map(({ term, leader }) => `${term} ${leader}`)).toEqual([
    "1 scheduler-1",
    "2 scheduler-3",
  ]);
});

it("starts before the first leader at the first flight", async () => {
  expect(await cursor.state()).toEqual({ term: 0, leader: undefined, next: 0, refused: 0 });
});
