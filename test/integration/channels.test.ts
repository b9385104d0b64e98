/** docs/channels.md lists every channel with every field. The test fails if a channel or field is not listed. */
import { channel } from "node:diagnostics_channel";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import "@x/effects";
import "@x/leader";
import "@x/workers";
import type { EffectsEvents, RelayEvents } from "@x/effects";
import type { LeaderMessages, LeaderTraces } from "@x/leader";
import { logTo, type RedlockEvents, type RedlockTraces } from "@x/redlock-core";
import { declaredLines } from "@x/redlock-core/kit";
import type { SemaphoreTraces } from "@x/semaphore";
import { pinoLines } from "@x/test-support";
import type { ExclusiveQueueEvents, WorkerEvents, WorkerTraces } from "@x/workers";
import { expect, it, onTestFinished } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const page = readFileSync(`${root}docs/channels.md`, "utf8");

/** The messages by channel: their fields, and whether each field is optional. The compiler finds missing fields. */
type Known<Messages> = {
  readonly [Channel in keyof Messages]: {
    readonly [Field in keyof Messages[Channel]]-?: object extends Pick<Messages[Channel], Field>
      ? "optional"
      : "always";
  };
};

const always = "always";
const optional = "optional";
const lock = { resources: always, fencingToken: always } as const;
const term = { election: always, candidate: always, term: always } as const;
const job = { queue: always, jobId: always, keys: always } as const;
const tick = {
  election: always,
  schedule: always,
  tickId: always,
  scheduledAtMs: always,
  lateMs: always,
  term: always,
  fencingToken: always,
  attempt: always,
} as const;

const redlock: Known<RedlockEvents> = {
  acquired: { ...lock, attempts: always, waitMs: always },
  acquireFailed: { resources: always, reason: always, attempts: always, waitMs: always, votes: always },
  refused: { resources: always, attempts: always, waitMs: always, votes: always },
  extended: { ...lock, tookMs: always, remainingMs: always, ttlMs: always },
  extendFailed: { ...lock, tookMs: always, remainingMs: always, ttlMs: always, votes: always },
  released: { ...lock, confirmed: always, heldMs: always },
  lost: { ...lock, reason: always, heldMs: always, votes: always },
  nodeChanged: { node: always, state: always, error: optional, quarantineLeftMs: optional },
};

const redlockTraces: Known<RedlockTraces> = {
  acquire: { resources: always },
  using: { resources: always },
  extend: lock,
  release: lock,
};

const semaphoreTraces: Known<SemaphoreTraces> = { acquire: { resource: always, permits: always } };

const effect = { effectId: always, resources: always, fencingToken: always } as const;

/** Listeners of `error` receive the error itself. Subscribers of its channel receive an object that contains it. */
type Published<Events> = Omit<Events, "error"> & { error: { error: unknown } };

const effects: Known<Published<EffectsEvents>> = {
  committed: { ...effect, tookMs: always, rows: always },
  repeated: effect,
  fencedOff: effect,
  retried: { effectId: always, attempt: always, error: always },
  error: { error: always },
};

const relays: Known<Published<RelayEvents>> = {
  relayed: { queue: always, rows: always, oldestMs: always },
  relayFailed: { queue: always, error: always },
  backlogMeasured: { rows: always, oldestMs: always },
  error: { error: always },
};

const leader: Known<LeaderMessages> = {
  elected: { ...term, waitMs: always, vacancyMs: always },
  ended: { ...term, reason: always, heldMs: always, drainMs: always },
  leaderChanged: { election: always, leader: always, term: always, vacancyMs: always },
  renewed: { ...term, tookMs: always, remainingMs: always, deadlineMs: always },
  renewFailed: { ...term, error: always, remainingMs: always, deadlineMs: always },
  overrun: { ...term, overrunMs: always },
  drainTimedOut: term,
  nodeFailed: { election: always, candidate: always, node: always, error: always },
  quarantined: { election: always, candidate: always, quarantineLeftMs: always },
  taskFailed: { ...term, error: always },
  error: { election: always, candidate: always, error: always },
  tickStarted: tick,
  tickCompleted: { ...tick, tookMs: always },
  tickFailed: { ...tick, tookMs: always, error: always },
  tickSkipped: { election: always, schedule: always, scheduledAtMs: always, reason: always },
  ticksMissed: { election: always, schedule: always, count: always },
};

const leaderTraces: Known<LeaderTraces> = { term: { ...term, fencingToken: always }, tick };

const workers: Known<WorkerEvents & ExclusiveQueueEvents> = {
  parked: { queue: always, jobs: always },
  locked: { ...job, fencingToken: always, waitMs: always },
  yielded: { ...job, reason: always, delayMs: always },
  woken: job,
  released: { ...job, fencingToken: always, heldMs: always, confirmed: always },
  dropped: { ...job, reason: always, by: always, error: optional },
  merged: { ...job, by: always, outcome: always },
  lost: { ...job, error: always },
  abandoned: { ...job, ageMs: always },
  keyPaused: { queue: always, key: always, reason: always, jobId: optional, untilMs: optional },
  keyResumed: { queue: always, key: always },
  keyLimited: { queue: always, key: always, untilMs: always },
};

const workerTraces: Known<WorkerTraces> = { run: { ...job, fencingToken: always, parkedMs: always } };

type Fields = Readonly<Record<string, string>>;

/** Returns the fields by channel as the page writes them, with a question mark behind optional fields. */
function written(prefix: string, messages: Readonly<Record<string, Fields>>): [string, string[]][] {
  return Object.entries(messages).map(([name, fields]) => [
    `${prefix}${name}`,
    Object.entries(fields).map(([field, presence]) => (presence === optional ? `${field}?` : field)),
  ]);
}

const rows = [...page.matchAll(/^\| `(x\.\w+[.:]\w+)` *\|[^|]*\|([^|]*)\|$/gm)].map(([, name = "", cell = ""]) => {
  const fields = cell.replaceAll(/\([^)]*\)/g, "").matchAll(/`(\w+\??)`/g);
  return [name, Array.from(fields, ([, field = ""]) => field)] as const;
});

it("the page lists each channel with the fields of its messages", () => {
  const known = [
    ...written("x.redlock.", redlock),
    ...written("x.redlock:", redlockTraces),
    ...written("x.semaphore:", semaphoreTraces),
    ...written("x.leader.", leader),
    ...written("x.leader:", leaderTraces),
    ...written("x.workers.", { ...workers, error: { queue: always, error: always } }),
    ...written("x.workers:", workerTraces),
    ...written("x.effects.", { ...effects, ...relays }),
  ];
  expect(rows.length).toBe(known.length);
  expect(Object.fromEntries(rows)).toEqual(Object.fromEntries(known));
});

it("the last word of each channel is a past participle or a noun", () => {
  const isNamedByGrammar = (name: string): boolean =>
    /(?:ed|lost|woken|fencedOff|timedOut)$/i.test(name) || ["error", "overrun"].includes(name);
  const events = rows.map(([name]) => name).filter((name) => !name.includes(":"));
  expect(events.length).toBeGreaterThan(40);
  expect(events.filter((name) => !isNamedByGrammar(name.split(".").at(-1) ?? ""))).toEqual([]);
});

it("the same fact has the same name in all messages", () => {
  const used = new Set(rows.flatMap(([, fields]) => fields.map((field) => field.replace("?", ""))));
  // A name that is not in this list must report a fact that no other name reports.
  const facts = `ageMs attempt attempts by candidate confirmed count deadlineMs delayMs drainMs effectId election error
    fencingToken heldMs jobId jobs key keys lateMs leader node oldestMs outcome overrunMs parkedMs permits
    quarantineLeftMs queue reason remainingMs resource resources rows schedule scheduledAtMs state term tickId tookMs
    ttlMs untilMs vacancyMs votes waitMs`;
  expect([...used].toSorted()).toEqual(facts.split(/\s+/));
});

it("each channel has a line of `logTo` with the fields of its message", () => {
  const { logger, lines } = pinoLines();
  onTestFinished(logTo(logger));
  const error = new Error("broken");
  const renamed: Readonly<Record<string, string>> = { error: "err", resources: "resource", keys: "key" };
  const events = rows.filter(([name]) => !name.includes(":"));
  for (const [name, fields] of events) {
    const message = fields
      .map((field) => field.replace("?", ""))
      .map((field) => [field, field === "error" ? error : 7]);
    channel(name).publish(Object.fromEntries(message));
  }
  const written = lines.map(({ level: _level, time: _time, msg, ...fields }) => [
    fields["event"],
    msg !== "",
    Object.keys(fields),
  ]);
  expect(written).toEqual(
    events.map(([name, fields]) => {
      const names = fields.map((field) => field.replace("?", ""));
      return [name, true, ["event", ...names.map((field) => renamed[field] ?? field)]];
    }),
  );
  for (const { err } of lines)
    if (err !== undefined) expect(err).toMatchObject({ message: "broken", stack: error.stack });
});

it("the page names the level of each line", () => {
  const section = page.slice(page.indexOf("\n## Logs"), page.indexOf("\n## ", page.indexOf("\n## Logs") + 1));
  const levels = new Map(
    [...section.matchAll(/^\| `(\w+)` *\|([^|]*)\|$/gm)].map(([, level = "", cell = ""]) => [
      level,
      Array.from(cell.matchAll(/`(x\.[\w.]+)`/g), ([, name = ""]) => name).toSorted(),
    ]),
  );
  const named = (level: string): string[] =>
    [...declaredLines()]
      .filter(([, [each]]) => each === level)
      .map(([name]) => name)
      .toSorted();
  for (const level of ["error", "warn", "info"]) expect([level, levels.get(level)]).toEqual([level, named(level)]);
  const varying = [...declaredLines()].filter(([, [each]]) => typeof each === "function").map(([name]) => name);
  expect(levels.get("varies")).toEqual(varying.toSorted());
});

it("the sources have no other channels", () => {
  const files = readdirSync(`${root}packages`).flatMap((name) =>
    readdirSync(`${root}packages/${name}/src`, { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .map((file) => readFileSync(`${root}packages/${name}/src/${file}`, "utf8")),
  );
  const sources = files.join("\n");
  const named = [...sources.matchAll(/new (?:Traced|Channels)(?:<[^>]*>)?\(\s*["`]([^"`]*)/g)].map(
    ([, name = ""]) => name,
  );
  const listed = rows.map(([name]) => name);
  expect(named.length).toBeGreaterThan(9);
  expect(named.filter((name) => !listed.some((each) => each === name || each.startsWith(`${name}.`)))).toEqual([]);
  // Only these two classes create channels to publish on.
  const makers = files.filter(
    (text) => text.includes("node:diagnostics_channel") && /\.(?:publish|trace\w*)\(/.test(text),
  );
  expect(makers.length).toBe(1);
});
