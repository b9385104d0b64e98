/**
 * The operators' side of the lane. Operators run no jobs and have no options of their own, so their commands follow the
 * rules that the queue's workers have stored. The script of a command compares the rules, and does nothing if the
 * workers have changed them.
 */
import type { Clock } from "@x/redlock-core";
import { inTime } from "@x/redlock-core/kit";
import { type BullTarget, removeJob, runScript } from "../bullmq/bullmq.ts";
import {
  type BullScripts,
  type ComposedScript,
  composeScripts,
  type LaneRules,
  type LaneScripts,
} from "../bullmq/rules/compose.ts";
import { LaneError, QueueUnreachableError, UNREACHABLE_MS } from "../errors.ts";
import { operate } from "../lane/operate.ts";
import { keyOptions } from "../options.ts";
import { type KeyFunction, pinOfJob } from "../rules/stored-job.ts";
import type { UnknownKeyJob } from "../scripts/command-replies.ts";
import type { OperatorCommand } from "../scripts/operate.lua.ts";
import { parseChangedRules, parseStoredRules } from "../scripts/operator-replies.ts";
import { rejectWithoutCommand } from "../without-command.ts";
import { parseRules } from "./rules/stored-rules.ts";

interface OperatorLaneParts {
  readonly queue: string;
  readonly target: BullTarget;
  readonly scripts: BullScripts;
  readonly clock: Clock;
  /** The option `key` of the queue: its path, and the function that computes the keys of a job. */
  readonly key: ReturnType<typeof keyOptions> | undefined;
}

/** The workers' rules, and the scripts that follow them. */
interface Known {
  /** JSON of the rules. Empty if no worker has stored any. */
  readonly text: string;
  readonly rules: LaneRules;
  readonly scripts: Pick<LaneScripts, "operate" | "cancel">;
}

/** Rules change when workers start with other options, so a command that meets changed rules this often gives up. */
const MAX_CHANGES = 5;

const readRules: ComposedScript = {
  name: "x:read-rules",
  numberOfKeys: 1,
  lua: "return redis.call('GET', KEYS[1])",
};

/** Reads the rules that the workers of a queue have stored. */
export async function readStoredRules(queue: BullTarget["queue"]): Promise<string> {
  return parseStoredRules(await runScript(await queue.client, readRules, [queue.toKey("lane:rules")]));
}

export class OperatorLane {
  readonly #parts: OperatorLaneParts;
  #known: Known | undefined;

  constructor(parts: OperatorLaneParts) {
    this.#parts = parts;
  }

  /** Runs one of the functions in scripts/operators.lua.ts with the rules of the workers. Resolves with its reply. */
  async operate(command: OperatorCommand, ...args: readonly (string | number)[]): Promise<unknown> {
    const { target, clock } = this.#parts;
    let known = await this.#knownRules();
    for (let changes = 0; changes < MAX_CHANGES; changes += 1) {
      const script = command === "cancel" ? known.scripts.cancel : known.scripts.operate;
      const call = { script, nowMs: Math.floor(clock.wallMs()), rules: `=${known.text}` };
      const reply = await this.answered(operate(target, call, command, args));
      const changed = parseChangedRules(reply);
      if (changed === undefined) return reply;
      known = this.#learn(changed);
    }
    throw new LaneError(this.#parts.queue, `the workers' options changed ${MAX_CHANGES} times during one command`);
  }

  /** Returns the function that computes the keys of a job. Undefined if only the workers have this function. */
  async keyFunction(): Promise<KeyFunction | undefined> {
    const { path } = (await this.#knownRules()).rules;
    const { key } = this.#parts;
    const keyOf = key?.keyOf ?? (path === undefined ? undefined : keyOptions(path.join(".")).keyOf);
    return keyOf as KeyFunction | undefined;
  }

  /** Reports whether the jobs of this queue have keys: workers have stored their rules, or the queue has a `key`. */
  async isKeyed(): Promise<boolean> {
    return (await this.#knownRules()).text !== "" || this.#parts.key !== undefined;
  }

  /** Computes the keys of jobs. Returns the IDs of the jobs that have `key`. */
  async idsOfJobsWithKey(key: string, jobs: readonly UnknownKeyJob[]): Promise<string[]> {
    const keyOf = jobs.length === 0 ? undefined : await this.keyFunction();
    if (keyOf === undefined) return [];
    const hasKey = (job: UnknownKeyJob): boolean => {
      const pin = pinOfJob(job, keyOf);
      return pin.kind === "keys" && pin.keys.includes(key);
    };
    return jobs.filter(hasKey).map(({ id }) => id);
  }

  /** Removes a job that is not running. Resolves with false if the job is running or cannot be removed. */
  async remove(jobId: string): Promise<boolean> {
    return await this.answered(rejectWithoutCommand(() => removeJob(this.#parts.target, jobId)));
  }

  /** Reads the stored rules for the first command, because the scripts are composed for these rules. */
  async #knownRules(): Promise<Known> {
    if (this.#known !== undefined) return this.#known;
    const { queue } = this.#parts.target;
    return this.#learn(await this.answered(rejectWithoutCommand(async () => await readStoredRules(queue))));
  }

  /** Settles like `answer`. Rejects with `QueueUnreachableError` if there is no answer for 30 s. */
  async answered<Value>(answer: Promise<Value>): Promise<Value> {
    const { clock, queue } = this.#parts;
    const otherwise = (): Error => new QueueUnreachableError(queue, "so the effect of the call is not known");
    return await inTime(clock, answer, { timeoutMs: UNREACHABLE_MS, otherwise });
  }

  #learn(text: string): Known {
    const { scripts, key } = this.#parts;
    const stored = parseRules(text);
    // Without stored rules, Redis can still read the keys of jobs by the path of this queue.
    const rules = { ...stored, path: text === "" ? key?.path : stored.path };
    this.#known = { text, rules, scripts: composeScripts(scripts, rules) };
    return this.#known;
  }
}
