/** Records which rights the TCP connections use. Connections through the server's socket belong to the test. */
import { Redis } from "ioredis";
import type { RedisServer } from "./redis.ts";

/** Commands that Redis allows every user. */
const FREE = new Set(["auth", "hello", "quit"]);
/** Commands whose second word is a separate command. */
const WITH_PARTS = new Set(["acl", "client", "cluster", "command", "config", "script"]);
const CALL = /\b[a-z]*call\(\s*["']([A-Za-z]+)["'](?:,\s*["']([A-Za-z]+)["'])?/g;

export interface UsedRights {
  /** Commands that were run, and commands that the sent scripts contain, in the form of ACL rules. */
  readonly commands: readonly string[];
  readonly keys: readonly string[];
  readonly channels: readonly string[];
}

/** Starts to record. `read` ends the recording. */
export async function recordRights(server: RedisServer): Promise<{ read(): Promise<UsedRights>; stop(): void }> {
  const admin = new Redis({ path: server.path });
  const monitor = await admin.monitor();
  const commands = new Set<string>();
  const channels = new Set<string>();
  const calls = new Map<string, readonly string[]>();
  let isOwn = false;
  let onEnd = (): void => undefined;
  const ended = new Promise<void>((resolve) => (onEnd = resolve));
  const add = (name: string, part: string | undefined): void => {
    const command = name.toLowerCase();
    if (!FREE.has(command)) commands.add(WITH_PARTS.has(command) ? `${command}|${part?.toLowerCase()}` : command);
  };
  monitor.on("monitor", (_time: string, args: readonly string[], source: string) => {
    const [name = "", part, third = ""] = args;
    // The commands of a script follow the call of the script.
    if (source !== "lua") isOwn = source.startsWith("unix:");
    if (isOwn) return part === "end of the record" ? onEnd() : undefined;
    add(name, part);
    const text = /^script$/i.test(name) ? third : /^eval$/i.test(name) ? (part ?? "") : "";
    for (const [, called = "", subcommand] of text.matchAll(CALL)) add(called, subcommand);
    if (/^publish$/i.test(name)) channels.add(part ?? "");
    else if (/^p?subscribe$/i.test(name)) for (const channel of args.slice(1)) channels.add(channel);
    else if (text === "") calls.set(JSON.stringify(args), args);
  });
  const stop = (): void => {
    monitor.disconnect();
    admin.disconnect();
  };
  return {
    stop,
    read: async () => {
      await admin.call("ECHO", "end of the record");
      await ended;
      const pipeline = admin.pipeline();
      for (const call of calls.values()) pipeline.call("COMMAND", "GETKEYS", ...call);
      const keys = ((await pipeline.exec()) ?? []).flatMap(([error, found]) =>
        error === null ? found : [],
      ) as string[];
      stop();
      const sorted = (each: Iterable<string>): readonly string[] => [...new Set(each)].sort();
      return { commands: sorted(commands), keys: sorted(keys), channels: sorted(channels) };
    },
  };
}
