/** The page's data as signals: the stream of states, the address, the open dialog. All parts are computed from them. */
import { computed, effect, signal } from "@preact/signals";
import type { KeyPolicy } from "@x/workers";
import { type StateChange, withChanges } from "../src/page/rules/changes.ts";
import type { ActionView, BrowserQuery, PageState, TickView } from "../src/page/state.ts";

/** The place that the address names: `#locks`, or `#queue=payments&key=account:4711`. */
export interface Route {
  readonly section: string;
  readonly queue: string;
  readonly key: string;
}

const SECTIONS: ReadonlySet<string> = new Set([
  "main",
  "workers",
  "queues",
  "time",
  "locks",
  "semaphores",
  "nodes",
  "outboxes",
]);

export function routeOf(hash: string): Route {
  const text = hash.replace(/^#/, "");
  if (SECTIONS.has(text)) return { section: text, queue: "", key: "" };
  const given = new URLSearchParams(text);
  const queue = given.get("queue") ?? "";
  return { section: "", queue, key: queue === "" ? "" : (given.get("key") ?? "") };
}

/** Returns the address of a queue, or of a key. */
export function hashOf(queue: string, key = ""): string {
  return `#${new URLSearchParams(key === "" ? { queue } : { queue, key })}`;
}

const contentOf = (name: string): string => document.querySelector(`meta[name=${name}]`)?.getAttribute("content") ?? "";
const token = contentOf("x-console-token");
/** Names this page, which has a budget of its own. */
const client = contentOf("x-console-client");

export const state = signal<PageState | undefined>(undefined);
export const route = signal<Route>(routeOf(location.hash));
/** The pages and searches of the tables. */
export const tables = signal({ locks: 0, findLock: "", keys: 0, findKey: "", keyGroup: "", schedules: 0 });
/** Why the page's server sends no data. Undefined while the stream is open. */
export const serverError = signal<string | undefined>("connecting");
/** The browser's time, in ms. Renewed with each state, and each second while no state arrives. */
const browserMs = signal(Date.now());
const receivedMs = signal(Date.now());

/** The server's time. */
export const now = computed(() => (state.value?.now ?? Date.now()) + Math.max(0, browserMs.value - receivedMs.value));

/** Whether the data are current: the server sends them, and a quorum of the nodes answers. */
export const isLive = computed(() => serverError.value === undefined && state.value?.live.isLive === true);

/** Why nothing can be changed at the moment. Undefined if actions may be sent. */
export const blocked = computed(() => {
  if (serverError.value !== undefined) return "The page's server does not answer.";
  return state.value?.live.isLive === true ? undefined : "Redis does not answer.";
});

/** What the open dialog is about: a question before an action, the details of a row, or the list of checks. */
export type Dialog =
  | { readonly kind: "confirm"; readonly action: ActionView }
  | { readonly kind: "schedule"; readonly scheduler: string; readonly name: string }
  | { readonly kind: "election"; readonly name: string }
  | { readonly kind: "lock"; readonly name: string }
  | { readonly kind: "job"; readonly queue: string; readonly key: string; readonly id: string }
  | { readonly kind: "limits"; readonly queue: string; readonly key: string; readonly policy: KeyPolicy | undefined }
  | { readonly kind: "checks" };
export const dialog = signal<Dialog | undefined>(undefined);
/** The outcome of the last action. */
export const outcome = signal<{ readonly text: string; readonly isBad: boolean } | undefined>(undefined);

function addressOf(path: string, query: Readonly<Record<string, string>>): string {
  return `${path}?${new URLSearchParams({ ...query, client })}`;
}

let hiding: ReturnType<typeof setTimeout> | undefined;

/** Shows a line for 8 s. */
export function tell(text: string, isBad = false): void {
  outcome.value = { text, isBad };
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    outcome.value = undefined;
  }, 8_000);
}

/** Runs an action, and shows its outcome. */
export async function run(action: ActionView): Promise<void> {
  const address = addressOf("act", { ...action.parameters, do: action.do });
  const headers = { "x-console-token": token };
  const response = await fetch(address, { method: "POST", headers }).catch(() => undefined);
  const text = (await response?.text()) ?? "The page's server does not answer.";
  if (response?.ok !== true) tell(text.trim(), true);
  else {
    const { isDone, message } = JSON.parse(text) as { readonly isDone: boolean; readonly message: string };
    tell(message, !isDone);
  }
}

/** Reads the last ticks of a schedule. Resolves with a message if they cannot be read. */
export async function ticksOf(scheduler: string, name: string): Promise<readonly TickView[] | string> {
  const response = await fetch(addressOf("history", { scheduler, name })).catch(() => undefined);
  if (response === undefined) return "The page's server does not answer.";
  if (!response.ok) return (await response.text()).trim();
  return ((await response.json()) as { readonly ticks: readonly TickView[] }).ticks;
}

const wanted = computed((): BrowserQuery => ({ ...tables.value, queue: route.value.queue, key: route.value.key }));

let source: EventSource | undefined;
let again: ReturnType<typeof setTimeout> | undefined;

/** Reads the stream of what is wanted. The previous state stays until the first new one. */
function listen(query: BrowserQuery): void {
  source?.close();
  clearTimeout(again);
  const fields = Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)]));
  const opened = new EventSource(addressOf("events", { ...fields, changes: "1" }));
  source = opened;
  let latest: PageState | undefined;
  const receive = (next: PageState): void => {
    latest = next;
    receivedMs.value = Date.now();
    browserMs.value = receivedMs.value;
    serverError.value = undefined;
    state.value = next;
  };
  opened.addEventListener("state", (event) => receive(JSON.parse(event.data) as PageState));
  opened.addEventListener("changes", (event) => {
    if (latest !== undefined) receive(withChanges(latest, JSON.parse(event.data) as readonly StateChange[]));
  });
  opened.addEventListener("error", () => {
    if (source !== opened) return;
    serverError.value = "no answer";
    // A browser gives up after an answer that is an error, such as one of a proxy.
    if (opened.readyState === EventSource.CLOSED) again = setTimeout(() => listen(query), 2_000);
  });
}

/** Begins to follow the address and to read the stream. Called once. */
export function start(): void {
  addEventListener("hashchange", () => {
    const next = routeOf(location.hash);
    if (next.queue !== route.value.queue) tables.value = { ...tables.value, keys: 0, findKey: "", keyGroup: "" };
    route.value = next;
  });
  let read = "";
  effect(() => {
    const query = wanted.value;
    // The address of a section changes nothing that is read.
    if (JSON.stringify(query) === read) return;
    read = JSON.stringify(query);
    listen(query);
  });
  setInterval(() => {
    if (Date.now() - receivedMs.value > 2_500) browserMs.value = Date.now();
  }, 1_000);
}
