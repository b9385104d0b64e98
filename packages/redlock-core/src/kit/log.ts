/**
 * Logs of all packages: one line for each message on a channel, while `logTo` is active.
 *
 * Each package declares the level and the text of its lines next to its events, so this file knows no other package.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { callQuietly, warn } from "./quietly.ts";
import { objectWith } from "./schema/check.ts";

/** The methods of a logger that `logTo` calls. A pino logger fits. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  /** Whether lines of a level are written. Without this method `logTo` assumes that all lines are. */
  isLevelEnabled?(level: string): boolean;
}

export type LogLevel = "debug" | "info" | "warn" | "error";

/** The level and text of a line. The level may depend on the message. */
export type LogLine<Message> = readonly [level: LogLevel | ((message: Message) => LogLevel), text: string];

/** The lines of a package, by the name of the message. */
export type LogLines<Messages> = { readonly [Name in keyof Messages]: LogLine<Messages[Name]> };

/** Ends the logging. Also ends the logging as a resource of `using`. */
export type StopLogging = (() => void) & Disposable;

const LOGGER = objectWith<Logger>(["debug", "info", "warn", "error"]);

const lines = new Map<string, LogLine<never>>();
const active = new Set<(channel: string, line: LogLine<never>) => void>();

/** Declares the line of a channel. Loggers that are active already also receive this channel's lines. */
export function declareLine(channel: string, line: LogLine<never>): void {
  const isNew = !lines.has(channel);
  lines.set(channel, line);
  if (isNew) for (const add of active) add(channel, line);
}

/** Returns the declared lines, by channel. */
export function declaredLines(): ReadonlyMap<string, LogLine<never>> {
  return lines;
}

/** Reports whether a logger is active in this process. */
export function isLogging(): boolean {
  return active.size > 0;
}

/**
 * Writes a line to `logger` for each message on a channel of the installed packages, until the returned function is
 * called. Without a call, nothing is logged.
 *
 * A line contains the fields of the message and `event`, the name of the channel. An error is the field `err`. The
 * fields `resource` and `key` contain a name, or an array if there are several. Everything that happens to each lock or
 * job has the level `debug`. Channels that only have lines of this level are left alone if
 * `logger.isLevelEnabled("debug")` is false during the call, so that they cost nothing.
 *
 * An error of the logger breaks nothing, and is a process warning once.
 * @throws TypeError if `logger` lacks one of the methods `debug`, `info`, `warn` and `error`
 */
export function logTo(logger: Logger): StopLogging {
  LOGGER.of("logger", logger);
  const isDebugging = logger.isLevelEnabled?.("debug") ?? true;
  const stops: (() => void)[] = [];
  let isWarned = false;
  const onError = (error: unknown): void => {
    if (!isWarned) warn(error, "X_LOGGER");
    isWarned = true;
  };
  const add = (channel: string, [level, text]: LogLine<never>): void => {
    if (level === "debug" && !isDebugging) return;
    const write = (message: object): void => {
      const found = typeof level === "string" ? level : level(message as never);
      if (found !== "debug" || isDebugging) return logger[found](fieldsOf(channel, message), text);
    };
    const listener = (message: unknown): void => callQuietly(() => write(message as object), onError);
    subscribe(channel, listener);
    stops.push(() => void unsubscribe(channel, listener));
  };
  for (const [channel, line] of lines) add(channel, line);
  active.add(add);
  const stop = (): void => {
    active.delete(add);
    for (const end of stops.splice(0)) end();
  };
  return Object.assign(stop, { [Symbol.dispose]: stop });
}

/** Names of fields in lines that differ from the names in messages. Pino prints the stack of an error named `err`. */
const RENAMED: Readonly<Record<string, string>> = { error: "err", resources: "resource", keys: "key" };

function fieldsOf(event: string, message: object): object {
  const entries = Object.entries(message).map(([name, value]: [string, unknown]) => {
    const renamed = RENAMED[name];
    return [renamed ?? name, renamed !== undefined && Array.isArray(value) && value.length === 1 ? value[0] : value];
  });
  return { event, ...Object.fromEntries(entries) };
}
