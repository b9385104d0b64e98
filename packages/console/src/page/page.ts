/**
 * The page as a request handler: one HTML file, two scripts, one style sheet, and their data. The page needs no other
 * server and sends no requests elsewhere.
 *
 * The page is read-only unless `actions` is true. It answers only for the configured hosts and knows no users: mount it
 * behind the login of your application.
 */
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { LeaderElection, UnknownScheduleError } from "@x/leader";
import { LeaderScheduler, type TickRecord } from "@x/leader/scheduler";
import type { Clock, Redlock } from "@x/redlock-core";
import {
  boolean,
  Check,
  choice,
  integer,
  listOf,
  Schema,
  type ShapeOf,
  shaped,
  text,
  textLike,
} from "@x/redlock-core/kit";
import { protocolOf, redlock as REDLOCK } from "@x/redlock-core/protocol";
import type { ExclusiveQueue } from "@x/workers";
import type { PartitionedQueue } from "@x/workers/partitions";
import { act, UnknownTargetError } from "./actions.ts";
import { actionRefusalOf, answer, isClient, LOOPBACK_HOSTS, newClient, refusal, refusalOf } from "./guard.ts";
import type { OutboxSource } from "./outboxes.ts";
import { Budgets } from "./rules/budgets.ts";
import { changesOf } from "./rules/changes.ts";
import { type BrowserQuery, jsonOf, type PageState, SHOWN_TICKS, type TickView } from "./state.ts";
import { Watch } from "./watch.ts";
import { textOf, withPatience } from "./watched.ts";

export interface PageOptions {
  /** The `Redlock` whose locks are shown. Elections are found on its nodes. */
  readonly redlock: Redlock;
  /**
   * Elections to show from the start, by name or as objects of your process. Further elections are found while the page
   * is open.
   */
  readonly elections?: readonly (string | LeaderElection)[] | undefined;
  /** Schedulers whose schedules are shown. Default: all schedulers that are found on the nodes of `redlock`. */
  readonly schedulers?: readonly LeaderScheduler[] | undefined;
  /** Queues whose keys are shown. */
  readonly queues?: readonly (ExclusiveQueue | PartitionedQueue)[] | undefined;
  /** Outboxes of `@x/effects` by the names that the page shows, 20 at most: `{ payments: effects }`. Default: none. */
  readonly outboxes?: Readonly<Record<string, OutboxSource>> | undefined;
  /** Whether the page may change something. Default false. */
  readonly actions?: boolean | undefined;
  /**
   * Host names under which browsers reach the page, with or without a port. Default: `localhost`, `127.0.0.1` and
   * `[::1]`. Requests for other hosts are refused, because an attacker's name may point to this server.
   */
  readonly hosts?: readonly string[] | undefined;
  /** The time between two looks while a browser has the page open, in ms, from 200 to 60,000. Default 1,000. */
  readonly refresh?: number | undefined;
  /**
   * A random text that each action must contain: 16 to 200 letters, digits, `_` and `-`. Pass the same text to all
   * replicas that answer for one address. Default: a new text per page.
   */
  readonly token?: string | undefined;
}

export interface NoteOptions {
  /** `"fault"` marks a fault that a test has caused. Default: `"note"`. */
  readonly kind?: "note" | "fault" | undefined;
}

/** A request handler for any router. */
export interface Page {
  (request: Request): Promise<Response>;
  /**
   * Shows a line of 1 to 500 characters in each browser that has the page open, and a mark on the time line, for
   * instance about a deployment.
   */
  note(text: string, options?: NoteOptions): void;
  /** Ends all live connections and the page's own requests. The objects in the options stay open. */
  close(): Promise<void>;
}

const ELECTION = shaped<LeaderElection>("a LeaderElection", (given) => given instanceof LeaderElection);
const NAME = text({ min: 1, max: 200 });
const TOKEN = textLike("16 to 200 letters, digits, _ and -", (given) => /^[\w-]{16,200}$/.test(given));
const NAMED = new Check<string | LeaderElection>({
  rule: "the name of an election, or a LeaderElection",
  faultOf: (given) => (NAME.accepts(given) || ELECTION.accepts(given) ? undefined : "type"),
});
const SCHEDULER = shaped<LeaderScheduler>("a LeaderScheduler", (given) => given instanceof LeaderScheduler);
const QUEUE = shaped<ExclusiveQueue | PartitionedQueue>("an ExclusiveQueue, or a PartitionedQueue", (given) =>
  ["readKey", "overview", "pauseKey", "resumeKey"].every((name) => typeof given[name] === "function"),
);

/** Each costs its database a question every five looks. */
const MOST_OUTBOXES = 20;
const OUTBOXES = shaped<Readonly<Record<string, OutboxSource>>>(
  `an object with ${MOST_OUTBOXES} Effects (of @x/effects) at most, by name`,
  (given) =>
    Object.keys(given).length <= MOST_OUTBOXES &&
    Object.values(given).every((each) => typeof (each as Partial<OutboxSource> | null)?.backlog === "function"),
);

const OPTIONS = new Schema({
  redlock: REDLOCK,
  elections: listOf("an array of names or of LeaderElections", NAMED).default([]),
  schedulers: listOf("an array of LeaderSchedulers", SCHEDULER).optional(),
  queues: listOf("an array of ExclusiveQueues and PartitionedQueues", QUEUE).default([]),
  outboxes: OUTBOXES.default({}),
  actions: boolean.default(false),
  hosts: listOf("an array of host names", NAME).default(LOOPBACK_HOSTS),
  refresh: integer({ min: 200, max: 60_000 }).default(1_000),
  token: TOKEN.optional(),
} satisfies ShapeOf<PageOptions>);

/** The most browsers that watch at the same time. Further browsers are refused. */
const MOST_VIEWERS = 100;
/** The most readers without a page among the viewers. */
const MOST_STRANGERS = 20;
/** The client of all requests that name no page. */
const STRANGER = "";
const LONGEST_QUERY = 4_000;
const EVENTS = "text/event-stream";
const JSON_TYPE = "application/json";
const NOT_YET = "no answer yet: the action may still take effect";

/** Addresses of the page's data and actions. Every other address without a dot leads to the page itself. */
const DATA: ReadonlySet<string> = new Set(["act", "state", "events", "history"]);

const ASSETS: Readonly<Record<string, string>> = {
  "page.js": "text/javascript; charset=utf-8",
  "details.js": "text/javascript; charset=utf-8",
  "page.css": "text/css; charset=utf-8",
};

/**
 * Creates a live page of locks, elections, schedules and keys. While no browser has the page open, the page sends
 * nothing to Redis.
 * @throws TypeError, RangeError naming option, rule and value
 */
export function createPage(options: PageOptions): Page {
  const served = new Served(options);
  return Object.assign((request: Request) => served.handle(request), {
    note: (text: string, options: NoteOptions = {}) =>
      served.watch.note(NOTE.of("text", text), NOTE_OPTIONS.resolve(options).kind),
    close: () => served.close(),
  });
}

const NOTE = text({ min: 1, max: 500 });
const NOTE_OPTIONS = new Schema({ kind: choice(["note", "fault"]).default("note") } satisfies ShapeOf<NoteOptions>);

class Served {
  readonly watch: Watch;
  readonly #hosts: readonly string[];
  readonly #hasActions: boolean;
  readonly #token: string;
  readonly #clock: Clock;
  /** The function that ends a stream, and the client that reads the stream. */
  readonly #streams = new Map<() => void, string>();
  readonly #budgets = new Budgets();
  #isClosed = false;

  constructor(options: PageOptions) {
    const { actions, hosts, token, ...watched } = OPTIONS.resolve(options);
    const { redlock } = watched;
    this.watch = new Watch({ ...watched, hasActions: actions });
    this.#clock = protocolOf(redlock).clock;
    this.#hosts = hosts;
    this.#hasActions = actions;
    this.#token = token ?? randomBytes(24).toString("base64url");
  }

  async handle(request: Request): Promise<Response> {
    try {
      const { pathname } = new URL(request.url);
      const name = pathname.slice(pathname.lastIndexOf("/") + 1);
      const isPage = !DATA.has(name) && !name.includes(".");
      return refusalOf(request, this.#hosts, isPage) ?? (await this.#route(request, name));
    } catch (error) {
      return refusal(500, textOf(error));
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const end of [...this.#streams.keys()]) end();
    await this.watch.close();
  }

  async #route(request: Request, name: string): Promise<Response> {
    const { search, searchParams } = new URL(request.url);
    if (search.length > LONGEST_QUERY) return refusal(414, "The query is too long.");
    if (this.#isClosed) return closed();
    if (name === "act") return request.method === "POST" ? await this.#act(request, searchParams) : notAllowed("POST");
    if (request.method !== "GET" && request.method !== "HEAD") return notAllowed("GET, HEAD");
    switch (name) {
      case "":
        return answer(200, "text/html; charset=utf-8", await this.#html());
      case "page.js":
      case "details.js":
      case "page.css":
        return answer(200, ASSETS[name] ?? "", await assetOf(name));
      case "state": {
        const wanted = wantedOf(searchParams);
        if (wanted.findLock + wanted.findKey + wanted.key !== "" && this.#isTooMuch(searchParams)) return tooOften();
        await this.watch.fresh();
        await this.watch.sections.queues.readKey(wanted);
        if (!this.watch.sections.canShow(wanted)) return tooOften();
        return answer(200, JSON_TYPE, this.watch.stateFor(wanted).text());
      }
      case "events":
        // A stream that answers HEAD would have no reader and no end.
        return request.method === "HEAD" ? answer(200, EVENTS, null) : this.#events(searchParams);
      case "history":
        return await this.#history(searchParams);
      default:
        // The page's own addresses are relative, so the page's address must end with a slash. The dot keeps "https:"
        // from being a scheme.
        return name.includes(".")
          ? refusal(404, "Not found.")
          : answer(308, "text/plain", null, { location: `./${name}/` });
    }
  }

  async #html(): Promise<string> {
    const html = await assetOf("page.html");
    return html
      .replace("{{token}}", () => (this.#hasActions ? this.#token : ""))
      .replace("{{client}}", () => newClient(this.#token));
  }

  /** Returns the client that a request names. */
  #clientOf(given: URLSearchParams): string {
    const client = given.get("client") ?? "";
    return isClient(client, this.#token) ? client : STRANGER;
  }

  #events(given: URLSearchParams): Response {
    const wanted = wantedOf(given);
    const client = this.#clientOf(given);
    const before = [...this.#streams].filter(([, reader]) => reader === client).map(([end]) => end);
    // A page reads one stream. An earlier stream may still be open because a proxy has not noticed its end.
    if (client !== STRANGER) for (const end of before) end();
    else if (before.length >= MOST_STRANGERS)
      return refusal(503, `${MOST_STRANGERS} readers without the page are connected already.`);
    if (this.#streams.size >= MOST_VIEWERS) return refusal(503, `${MOST_VIEWERS} browsers are watching already.`);
    const encoder = new TextEncoder();
    const sendsChanges = given.get("changes") === "1";
    let sent: PageState | undefined;
    let end = (): void => undefined;
    const stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          controller.enqueue(encoder.encode("retry: 1000\n\n"));
          const leave = this.watch.join({
            wanted,
            // A slow browser skips this state and receives the next.
            send: ({ state, text }) => {
              if ((controller.desiredSize ?? 0) <= 0) return;
              const event =
                sent === undefined ? eventOf("state", text()) : eventOf("changes", jsonOf(changesOf(sent, state)));
              controller.enqueue(encoder.encode(event));
              if (sendsChanges) sent = state;
            },
          });
          end = (): void => {
            leave();
            if (!this.#streams.delete(end)) return;
            controller.close();
          };
          this.#streams.set(end, client);
        },
        cancel: () => {
          this.#streams.delete(end);
          end();
        },
      },
      { highWaterMark: 4 },
    );
    return answer(200, EVENTS, stream, { "x-accel-buffering": "no" });
  }

  /** Answers with the last ticks of a schedule. */
  async #history(given: URLSearchParams): Promise<Response> {
    if (this.#isTooMuch(given)) return tooOften();
    await this.watch.fresh();
    const scheduler = this.watch.sections.schedulers.get(given.get("scheduler") ?? "");
    const name = given.get("name") ?? "";
    if (scheduler === undefined || name === "") return refusal(404, "This schedule does not exist.");
    try {
      const ticks = await withPatience(this.#clock, scheduler.history(name));
      return json(200, { ticks: ticks.slice(0, SHOWN_TICKS).map(tickView) });
    } catch (error) {
      return error instanceof UnknownScheduleError ? refusal(404, textOf(error)) : refusal(502, textOf(error));
    }
  }

  async #act(request: Request, given: URLSearchParams): Promise<Response> {
    if (!this.#hasActions) return refusal(403, "This page is read-only.");
    const refused = actionRefusalOf(request, this.#token);
    if (refused !== undefined) return refused;
    if (this.#isTooMuch(given)) return tooOften();
    // The page may come from another replica, so this process must first find the target of the action.
    await this.watch.fresh();
    if (this.#isClosed) return closed();
    const away = this.#refusalOfQueue(given.get("queue") ?? "");
    if (away !== undefined) return away;
    try {
      const outcome = await withPatience(this.#clock, act(this.watch.sections, given.get("do") ?? "", given), NOT_YET);
      this.watch.note(outcome.message);
      return json(200, outcome);
    } catch (error) {
      return refusal(error instanceof UnknownTargetError || error instanceof RangeError ? 400 : 502, textOf(error));
    }
  }

  /** Refuses requests for a queue whose Redis is away: the client would keep a request and run it later. */
  #refusalOfQueue(name: string): Response | undefined {
    const error = this.watch.sections.queues.errorOf(name);
    return error === undefined ? undefined : refusal(503, `Not done. Queue ${name}: ${error}`);
  }

  /**
   * Counts a request that costs Redis time or searches many names. Reports whether the client has exceeded its budget.
   */
  #isTooMuch(given: URLSearchParams): boolean {
    return !this.#budgets.take(this.#clientOf(given), this.#clock.monotonicMs());
  }
}

/** Reads a file for the browser, which the build has bundled. The path is right from `src` and from `dist`. */
async function assetOf(name: string): Promise<string> {
  return await readFile(new URL(`../../dist/assets/${name}`, import.meta.url), "utf8");
}

function eventOf(name: "state" | "changes", json: string): string {
  return `event: ${name}\ndata: ${json}\n\n`;
}

function json(status: number, value: unknown): Response {
  return answer(status, JSON_TYPE, jsonOf(value));
}

function tickView(record: TickRecord): TickView {
  const { outcome, scheduledAt, lateMs, tookMs, attempt, error, reason, count } = record;
  return { outcome, at: scheduledAt.getTime(), lateMs, tookMs, attempt, error, reason, count };
}

function closed(): Response {
  return refusal(503, "The page was closed.");
}

function tooOften(): Response {
  return refusal(429, "Too many requests.");
}

function notAllowed(methods: string): Response {
  return answer(405, "text/plain; charset=utf-8", "Method not allowed.\n", { allow: methods });
}

/** Parses the pages and searches that a browser wants. Invalid numbers become 0. */
function wantedOf(given: URLSearchParams): BrowserQuery {
  const numberOf = (name: string): number => {
    const value = Number(given.get(name) ?? "0");
    return Number.isInteger(value) && value >= 0 && value <= 1_000_000 ? value : 0;
  };
  return {
    locks: numberOf("locks"),
    findLock: (given.get("findLock") ?? "").slice(0, 200),
    queue: given.get("queue") ?? "",
    keys: numberOf("keys"),
    key: (given.get("key") ?? "").slice(0, 4_000),
    findKey: (given.get("findKey") ?? "").slice(0, 200),
    keyGroup: (given.get("keyGroup") ?? "").slice(0, 20),
    schedules: numberOf("schedules"),
  };
}
