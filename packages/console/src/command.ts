/** The context of a command, and the behavior that all commands share: watching, and asking before a change. */
import { setTimeout as delay } from "node:timers/promises";
import { abortable } from "@x/redlock-core/kit";
import type { Connections } from "./connections.ts";
import { ConsoleFailure } from "./failure.ts";
import { type Output, printable } from "./output.ts";
import type { Terminal } from "./terminal.ts";

export interface CommandContext {
  readonly connections: Connections;
  readonly output: Output;
  readonly terminal: Terminal;
  /** Seconds between two looks. Undefined: the command looks once. */
  readonly watch: number | undefined;
  /** Whether changes need no confirmation. */
  readonly isConfirmed: boolean;
}

/** Whether the answer is good: true gives exit code 0, false gives 1. */
export type IsGood = boolean;

/**
 * Runs `look` once, or repeatedly until the terminal's signal aborts. Resolves with the answer of the last look. Throws
 * `ConsoleFailure` if the signal aborts before the first answer.
 */
export async function looking(context: CommandContext, look: () => Promise<IsGood>): Promise<IsGood> {
  const { watch, terminal, output } = context;
  let isGood: IsGood | undefined;
  for (;;) {
    if (watch !== undefined && terminal.isInteractive && !output.isJson) output.clear();
    const answer = await untilEnded(look(), terminal.signal);
    isGood = answer ?? isGood;
    if (isGood === undefined) throw new ConsoleFailure("The command was ended before Redis answered.");
    if (watch === undefined || answer === undefined) return isGood;
    try {
      await delay(watch * 1_000, undefined, { signal: terminal.signal });
    } catch {
      return isGood;
    }
  }
}

/**
 * Waits for the answer of a look. Undefined if the signal aborts first: a client may keep a request forever while its
 * Redis is away.
 */
async function untilEnded(looked: Promise<IsGood>, signal: AbortSignal): Promise<IsGood | undefined> {
  try {
    return await abortable(looked, signal);
  } catch (error) {
    if (signal.aborted && error === signal.reason) return undefined;
    throw error;
  }
}

/** Asks before a change. Resolves with false if the answer is no. Without a terminal, only --yes confirms. */
export async function confirmed({ isConfirmed, terminal }: CommandContext, question: string): Promise<boolean> {
  if (isConfirmed) return true;
  if (!terminal.isInteractive) {
    throw new ConsoleFailure(`${question} Pass --yes: without a terminal the command cannot ask.`);
  }
  return await terminal.confirm(printable(question));
}
