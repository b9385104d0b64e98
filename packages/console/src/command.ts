/** What every command gets, and what is the same for all: watching, and asking before something is changed. */
import { setTimeout as delay } from "node:timers/promises";
import { abortable } from "@x/redlock-core/protocol";
import type { Connections } from "./connections.ts";
import { ConsoleFailure } from "./failure.ts";
import { type Output, printable } from "./output.ts";
import type { Terminal } from "./terminal.ts";

export interface Command {
  readonly connections: Connections;
  readonly output: Output;
  readonly terminal: Terminal;
  /** The seconds between two looks; undefined: one look. */
  readonly watch: number | undefined;
  /** Whether what is changed need not be confirmed. */
  readonly isConfirmed: boolean;
}

/** The exit code of an answer: true is 0, false is 1. */
export type IsGood = boolean;

/**
 * Runs a look once, or until the watching is ended. Resolves with the answer of the last look. Throws `ConsoleFailure`
 * if it is ended before there is one.
 */
export async function looking(command: Command, look: () => Promise<IsGood>): Promise<IsGood> {
  const { watch, terminal, output } = command;
  let isGood: IsGood | undefined;
  for (;;) {
    if (watch !== undefined && terminal.isInteractive && !output.isJson) output.clear();
    const answer = await untilEnded(look(), terminal.signal);
    isGood = answer ?? isGood;
    if (isGood === undefined) throw new ConsoleFailure("It was ended before Redis has answered.");
    if (watch === undefined || answer === undefined) return isGood;
    try {
      await delay(watch * 1_000, undefined, { signal: terminal.signal });
    } catch {
      return isGood;
    }
  }
}

/** Waits for the answer of a look, or the end. A client whose Redis is away may keep what it was asked for ever. */
async function untilEnded(looked: Promise<IsGood>, signal: AbortSignal): Promise<IsGood | undefined> {
  try {
    return await abortable(looked, signal);
  } catch (error) {
    if (signal.aborted && error === signal.reason) return undefined;
    throw error;
  }
}

/** Asks before something is changed. Resolves with false for a no; without a terminal only --yes is a yes. */
export async function confirmed({ isConfirmed, terminal }: Command, question: string): Promise<boolean> {
  if (isConfirmed) return true;
  if (!terminal.isInteractive) {
    throw new ConsoleFailure(`${question} Not without --yes, because nobody can be asked here.`);
  }
  return await terminal.confirm(printable(question));
}
