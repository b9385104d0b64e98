/** Pure: the settings and arguments of node-redlock, with their defaults and rules. */
import { Check, integer, kindOf, number, numberLike, Schema, type ShapeOf, shaped } from "@x/redlock-core/kit";
import { DEFAULT_DRIFT_FACTOR, driftMs, MAX_NODES } from "@x/redlock-core/protocol";
import type { Client, EngineSettings, Settings, SomeSettings } from "./types.ts";

const DEFAULT_SETTINGS: Settings = Object.freeze({
  driftFactor: DEFAULT_DRIFT_FACTOR,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});

type Script = string | ((script: string) => string);

/** Custom scripts of node-redlock, which must be left out because the engine has scripts of its own. */
export type CustomScripts = {
  readonly [Name in "acquireScript" | "extendScript" | "releaseScript"]?: Script | undefined;
};

const FINITE_MS = numberLike("finite (ms)", Number.isFinite);

/** Unknown names are ignored, as in node-redlock, because existing code passes settings of other versions. */
const SETTINGS = new Schema({
  driftFactor: number({ min: 0, max: 0.5 }).optional(),
  retryCount: numberLike("a number", (value) => !Number.isNaN(value)).optional(),
  retryDelay: FINITE_MS.optional(),
  retryJitter: FINITE_MS.optional(),
  automaticExtensionThreshold: FINITE_MS.optional(),
} satisfies ShapeOf<SomeSettings>);

export const ENGINE_SETTINGS: Schema<ShapeOf<EngineSettings>> = new Schema({
  nodeTimeout: integer({ min: 1 }).optional(),
  maxTtl: integer({ min: 1 }).optional(),
});

const SCRIPT = new Check<Script>({ rule: "left out, as the engine has its own script", faultOf: () => "type" });

export const SCRIPTS: Schema<ShapeOf<CustomScripts>> = new Schema({
  acquireScript: SCRIPT.optional(),
  extendScript: SCRIPT.optional(),
  releaseScript: SCRIPT.optional(),
});

export const OBJECT: Check<object> = shaped<object>(
  "an object",
  (given) => Object.prototype.toString.call(given) === "[object Object]",
);

/** Checks a lock, which the caller may have constructed. `resources` is the name of the field with its resources. */
export function lockWith<Lock>(resources: keyof Lock & string): Check<Lock> {
  return shaped("a Lock", ({ [resources]: names, value, expiration }) => {
    return names !== undefined && typeof value === "string" && typeof expiration === "number";
  });
}

/** Returns complete settings. Settings that are left out or undefined are taken from `defaults`. */
export function settingsOf(settings: SomeSettings | undefined, defaults: Settings = DEFAULT_SETTINGS): Settings {
  if (settings === undefined) return defaults;
  return { ...defaults, ...numbersIn(SETTINGS.pick(OBJECT.of("settings", settings))) };
}

/** Returns the numbers of an object, without its other values. */
export function numbersIn(given: object): Readonly<Record<string, number>> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => typeof value === "number"));
}

const CLIENT = shaped<Client>("clients of ioredis", () => true);

export function clientsOf(given: Iterable<Client>): Set<Client> {
  let clients: Set<Client>;
  try {
    clients = new Set([...given]);
  } catch {
    throw new TypeError(`clients must be an iterable of clients, got ${kindOf(given)}`);
  }
  if (clients.size > MAX_NODES) throw new RangeError(`clients must be at most ${MAX_NODES}, got ${clients.size}`);
  for (const client of clients) CLIENT.of("clients", client);
  return clients;
}

export function checkDuration(duration: number, driftFactor: number, maxTtl: number | undefined): void {
  if (!Number.isInteger(duration)) throw new RangeError("Duration must be an integer value in milliseconds.");
  const drift = driftMs(duration, driftFactor);
  if (duration <= drift) throw new RangeError(`Duration must be > drift (${drift}), got ${duration}`);
  const most = maxTtl ?? Number.MAX_SAFE_INTEGER;
  const named = maxTtl === undefined ? most : `maxTtl (${most})`;
  if (duration > most) throw new RangeError(`Duration must be <= ${named}, got ${duration}`);
}
