/** Pure: the settings and arguments of node-redlock, with their defaults and rules. */
import { Check, integer, kindOf, number, Schema, type ShapeOf, shaped } from "@x/redlock-core/kit";
import { DEFAULT_DRIFT_FACTOR, driftMs, MAX_NODES } from "@x/redlock-core/protocol";
import type { Client, EngineSettings, Settings, SomeSettings } from "./types.ts";

export const DEFAULT_SETTINGS: Settings = Object.freeze({
  driftFactor: DEFAULT_DRIFT_FACTOR,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});

/** Custom scripts of node-redlock, which must be left out because the engine has scripts of its own. */
export interface CustomScripts {
  readonly acquireScript?: string | ((script: string) => string) | undefined;
  readonly extendScript?: string | ((script: string) => string) | undefined;
  readonly releaseScript?: string | ((script: string) => string) | undefined;
}

const FINITE_MS = new Check<number>({
  rule: "finite (ms)",
  faultOf: (value) => {
    if (typeof value !== "number") return "type";
    return Number.isFinite(value) ? undefined : "range";
  },
});

/** Unknown names are ignored, as in node-redlock, because existing code passes settings of other versions. */
const SETTINGS = new Schema({
  driftFactor: number({ min: 0, max: 0.5 }).optional(),
  retryCount: new Check<number>({
    rule: "a number",
    faultOf: (value) => {
      if (typeof value !== "number") return "type";
      return Number.isNaN(value) ? "range" : undefined;
    },
  }).optional(),
  retryDelay: FINITE_MS.optional(),
  retryJitter: FINITE_MS.optional(),
  automaticExtensionThreshold: FINITE_MS.optional(),
} satisfies ShapeOf<SomeSettings>);

const ENGINE_SETTINGS = new Schema({
  nodeTimeout: integer({ min: 1 }).optional(),
  maxTtl: integer({ min: 1 }).optional(),
} satisfies ShapeOf<EngineSettings>);

const SCRIPT = new Check<never>({ rule: "left out, as the engine has its own script", faultOf: () => "type" });
const SCRIPTS = new Schema({
  acquireScript: SCRIPT.optional(),
  extendScript: SCRIPT.optional(),
  releaseScript: SCRIPT.optional(),
} satisfies ShapeOf<CustomScripts>);

export function engineSettingsOf(settings: EngineSettings): EngineSettings {
  return ENGINE_SETTINGS.pick(settings);
}

/** Throws `TypeError` for custom scripts, because the promises depend on the engine's own script. */
export function refuseScripts(scripts: CustomScripts): void {
  SCRIPTS.resolve(scripts, "scripts");
}

export const OBJECT: Check<object> = shaped<object>(
  "an object",
  (given) => Object.prototype.toString.call(given) === "[object Object]",
);

/** Returns complete settings. Settings that are left out or undefined are taken from `defaults`. */
export function settingsOf(settings: SomeSettings | undefined, defaults: Settings): Settings {
  if (settings === undefined) return defaults;
  const given = SETTINGS.pick(OBJECT.of("settings", settings));
  return {
    driftFactor: given.driftFactor ?? defaults.driftFactor,
    retryCount: given.retryCount ?? defaults.retryCount,
    retryDelay: given.retryDelay ?? defaults.retryDelay,
    retryJitter: given.retryJitter ?? defaults.retryJitter,
    automaticExtensionThreshold: given.automaticExtensionThreshold ?? defaults.automaticExtensionThreshold,
  };
}

export function clientsOf(given: Iterable<Client>): Set<Client> {
  let clients: Set<Client> | undefined;
  try {
    if (typeof given === "object" && given !== null) clients = new Set(given);
  } catch {
    // `given` is not iterable, or throws.
  }
  if (clients === undefined) throw new TypeError(`clients must be an iterable of clients, got ${kindOf(given)}`);
  if (clients.size > MAX_NODES) throw new RangeError(`clients must be at most ${MAX_NODES}, got ${clients.size}`);
  for (const client of clients) {
    if (typeof client !== "object" || client === null)
      throw new TypeError(`clients must be clients of ioredis, got ${kindOf(client)}`);
  }
  return clients;
}

export function checkDuration(duration: number, driftFactor: number, maxTtl: number | undefined): void {
  if (!Number.isInteger(duration)) throw new RangeError("Duration must be an integer value in milliseconds.");
  if (duration > Number.MAX_SAFE_INTEGER) {
    throw new RangeError(`Duration must be <= ${Number.MAX_SAFE_INTEGER}, got ${duration}`);
  }
  const drift = driftMs(duration, driftFactor);
  if (duration <= drift) throw new RangeError(`Duration must be > drift (${drift}), got ${duration}`);
  if (maxTtl !== undefined && duration > maxTtl) {
    throw new RangeError(`Duration must be <= maxTtl (${maxTtl}), got ${duration}`);
  }
}
