/** The connection and the locks of the worker in the small world. */
import type { Job } from "bullmq";
import type { BullClient } from "../../../packages/workers/src/bullmq/bullmq.ts";
import type { LaneLocks } from "../../../packages/workers/src/lane/taken-job.ts";

/** A command whose reply was lost. The client sends the same arguments again. */
export interface SentCommand {
  readonly name: string;
  readonly args: readonly unknown[];
  /** The token for the lock of the next job's key in the arguments. */
  readonly lockToken: string;
}

/** The result of a call whose reply was lost. */
export const LOST: unique symbol = Symbol("lost");

class LostReply extends Error {}

/** Stands in for the locks of a worker: gives the lane tokens for the locks of its next jobs. */
export class StepLocks implements LaneLocks {
  readonly #isOn: boolean;
  #count = 0;
  /** The token of a command that is sent again. */
  repeated: string | undefined;
  lastToken = "";

  constructor(isOn: boolean) {
    this.#isOn = isOn;
  }

  newToken(): string {
    if (!this.#isOn) return "";
    this.#count += 1;
    this.lastToken = this.repeated ?? this.#count.toString(16).padStart(40, "0");
    this.repeated = undefined;
    return this.lastToken;
  }

  /** A process claims each lock as soon as it receives the job. */
  dropUnclaimed(): void {}
}

/** A connection on which the reply of a command can be lost, and the command sent again in a later step. */
export class Wire {
  readonly #locks: StepLocks;
  readonly #clients = new WeakMap<BullClient, BullClient>();
  #losesNext = false;
  #sent: SentCommand | undefined;
  #again: SentCommand | undefined;

  constructor(locks: StepLocks) {
    this.#locks = locks;
  }

  around(client: BullClient): BullClient {
    const known = this.#clients.get(client);
    if (known !== undefined) return known;
    const runCommand = async (name: string, args: readonly unknown[]): Promise<unknown> =>
      await this.#run(client, name, args);
    const wired = { defineCommand: client.defineCommand.bind(client), runCommand };
    this.#clients.set(client, wired);
    return wired;
  }

  /** Calls a method of BullMQ. Resolves with its result, with the refusal of BullMQ, or with LOST. */
  async outcomeOf<Result>(call: () => Promise<Result>, isLost: boolean): Promise<Result | Refusal | typeof LOST> {
    this.#losesNext = isLost;
    try {
      return await call();
    } catch (error) {
      if (error instanceof LostReply) return LOST;
      if (isRefused(error)) return new Refusal(error.name);
      throw error;
    } finally {
      this.#losesNext = false;
    }
  }

  /** Returns the command whose reply was lost. */
  takeSent(): SentCommand {
    const sent = this.#sent;
    this.#sent = undefined;
    if (sent === undefined) throw new Error("no command was sent");
    return sent;
  }

  /** Sends this command instead of the next one. */
  sendAgain(command: SentCommand): void {
    this.#again = command;
    this.#locks.repeated = command.lockToken;
  }

  async #run(client: BullClient, name: string, args: readonly unknown[]): Promise<unknown> {
    const again = this.#again;
    this.#again = undefined;
    if (again !== undefined) return await send(client, again.name, again.args);
    const { lastToken: lockToken } = this.#locks;
    const reply = await send(client, name, args);
    if (!this.#losesNext) return reply;
    this.#losesNext = false;
    this.#sent = { name, args, lockToken };
    throw new LostReply();
  }
}

/** A command that BullMQ or the lane has refused. */
export class Refusal {
  readonly why: string;

  constructor(why: string) {
    this.why = why;
  }
}

/** Refusals of BullMQ have a negative code. */
function isRefused(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  return Number((error as { readonly code?: unknown }).code) < 0 || error.name === "JobCancelledError";
}

async function send(client: BullClient, name: string, args: readonly unknown[]): Promise<unknown> {
  if (client.runCommand !== undefined) return await client.runCommand(name, args);
  const commands = client as unknown as Readonly<Record<string, (args: readonly unknown[]) => Promise<unknown>>>;
  return await commands[name]?.(args);
}

/** Copies a job. BullMQ changes a job that it ends, and other steps from the same state need the job unchanged. */
export function copyOf<OfJob extends Job>(job: OfJob): OfJob {
  const copy = Object.assign(Object.create(Object.getPrototypeOf(job) as object) as OfJob, job);
  copy.stacktrace = [...(job.stacktrace ?? [])];
  return copy;
}
