import { readFileSync } from "node:fs";
import type { Flight } from "./flight.ts";
import { parseFlights } from "./flight.ts";

/** What the processes of one run share. */
export interface Settings {
  /** Every key on every Redis starts with it. */
  readonly prefix: string;
  /** The Redis of the queue and the boards. */
  readonly redisUrl: string;
  readonly lockRedisUrls: readonly string[];
  /** How many flights of the log are replayed, from its start. */
  readonly flights: number;
  /** Plain BullMQ workers without locks. */
  readonly naive: boolean;
  /** What a run waits between its read and its write, in ms. */
  readonly pauseMs: number;
}

export const queueName = "departures";

/** Lease of the locks of airports and leaders, and of BullMQ's own lock on a job, in ms: short, so that takeovers can be watched. */
export const leaseMs = 4_000;
export const stalledIntervalMs = 1_000;

const variable = "DEPARTURE_BOARDS_SETTINGS";

/** The environment by which a child process gets the settings and its own name. */
export function toEnvironment(settings: Settings, name: string): Record<string, string> {
  return { [variable]: JSON.stringify({ settings, name }) };
}

export function fromEnvironment(): { readonly settings: Settings; readonly name: string } {
  const text = process.env[variable];
  if (text === undefined) throw new Error(`${variable} is not set: main.ts starts this process`);
  return JSON.parse(text) as { settings: Settings; name: string };
}

/** The first `count` flights of the log. */
export function readFlights(count: number): Flight[] {
  return parseFlights(readFileSync(new URL("../data/flights.csv", import.meta.url), "utf8")).slice(0, count);
}
