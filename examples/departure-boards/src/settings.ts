import { readFileSync } from "node:fs";
import { hostname } from "node:os";
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
export const electionName = "replay";

/** Lease of the locks of airports and leaders, and of BullMQ's own lock on a job, in ms: short, so that takeovers can be watched. */
export const leaseMs = 4_000;
export const stalledIntervalMs = 1_000;

const variable = "DEPARTURE_BOARDS_SETTINGS";

const nameVariable = "DEPARTURE_BOARDS_NAME";

/** The environment by which a process gets the settings and its own name. */
export function toEnvironment(settings: Settings, name: string): Record<string, string> {
  return { [variable]: JSON.stringify(settings), [nameVariable]: name };
}

/** @throws Error when the process was started without settings. */
export function settingsFrom(environment: NodeJS.ProcessEnv): Settings {
  const text = environment[variable];
  if (text === undefined) throw new Error(`${variable} is not set: main.ts and docker-compose.yml set it`);
  return JSON.parse(text) as Settings;
}

/** This process's name; by default one that tells replicas in containers apart. */
export function nameFrom(environment: NodeJS.ProcessEnv, role: string): string {
  return environment[nameVariable] ?? `${role}-${hostname()}`;
}

/** The first `count` flights of the log. */
export function readFlights(count: number): Flight[] {
  return parseFlights(readFileSync(new URL("../data/flights.csv", import.meta.url), "utf8")).slice(0, count);
}
