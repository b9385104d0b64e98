/** Actions of the page. Each action calls one method of the packages, with that method's own safety. */
import type { LeaderScheduler } from "@x/leader/scheduler";
import type { ExclusiveQueue, KeyPolicy } from "@x/workers";
import type { AskedQueue } from "./queues.ts";
import { cancelledText, countedText, policyText } from "./rules/words.ts";
import type { Sections } from "./sections.ts";

/** The outcome of an action, in words. */
export interface ActionOutcome {
  readonly isDone: boolean;
  readonly message: string;
}

type Action = (sections: Sections, about: About) => Promise<ActionOutcome>;

/** The parameters of an action. */
interface About {
  readonly text: (name: string) => string;
  /** Returns a parameter that may be missing. */
  readonly given: (name: string) => string | undefined;
}

/** The target of an action does not exist. */
export class UnknownTargetError extends Error {}

const outcome = (isDone: boolean, done: string, not: string): ActionOutcome => ({
  isDone,
  message: isDone ? done : not,
});

const ACTIONS: Readonly<Record<string, Action>> = {
  async "release-lock"({ redlock }, { text }) {
    const resource = text("resource");
    return outcome(await redlock.forceRelease(resource), `${resource} was taken away`, `nobody had ${resource}`);
  },
  async resign({ elections }, { text }) {
    const name = text("election");
    const election = elections.get(name) ?? missing("election", name);
    return outcome(
      await election.requestResign(),
      `the leader of ${name} was asked to resign`,
      `${name}: nobody leads`,
    );
  },
  async "pause-key"({ queues }, { text }) {
    const key = text("key");
    const queue = queues.get(text("queue")) ?? missing("queue", text("queue"));
    return outcome(
      await queue.pauseKey(key, "paused on the page"),
      `key ${key} is paused`,
      `key ${key} was paused before`,
    );
  },
  async "resume-key"({ queues }, { text }) {
    const key = text("key");
    const queue = queues.get(text("queue")) ?? missing("queue", text("queue"));
    return outcome(await queue.resumeKey(key), `key ${key} goes on`, `key ${key} was not paused`);
  },
  async "cancel-job"(sections, about) {
    const jobId = about.text("jobId");
    const found = await ownerOf(sections, about).cancel(jobId, "cancelled on the page");
    return { isDone: found !== "unknown", message: cancelledText(jobId, found) };
  },
  async "remove-job"(sections, about) {
    const jobId = about.text("jobId");
    const owner = ownerOf(sections, about);
    const found = await owner.cancel(jobId, "removed on the page", { remove: true });
    const isRemoved = found !== "running" && (await owner.getJob(jobId)) === undefined;
    if (found === "unknown" || !isRemoved) return { isDone: found !== "unknown", message: cancelledText(jobId, found) };
    return { isDone: true, message: `job ${jobId} was ${found}, and is removed` };
  },
  async "remove-jobs"(sections, about) {
    const key = about.text("key");
    const count = await ownerOf(sections, about).removeJobs(key, { state: "parked" });
    return outcome(
      count > 0,
      `${countedText(count, "job")} in line for key ${key} ${count === 1 ? "is" : "are"} removed`,
      `no job waits for key ${key}`,
    );
  },
  async "retry-job"(sections, about) {
    const [jobId, key] = [about.text("jobId"), about.text("key")];
    const owner = ownerOf(sections, about);
    const job = await owner.getJob(jobId);
    const state = await job?.getState();
    if (job === undefined || state !== "failed") {
      const why = job === undefined ? `job ${jobId} does not exist` : `job ${jobId} is ${state}`;
      return { isDone: false, message: `${why}: key ${key} stays as it is` };
    }
    await job.retry("failed");
    await owner.resumeKey(key);
    return { isDone: true, message: `job ${jobId} runs again, and key ${key} goes on` };
  },
  async "set-policy"({ queues }, { text, given }) {
    const key = text("key");
    const queue = queues.get(text("queue")) ?? missing("queue", text("queue"));
    const policy = policyIn(given);
    await queue.setKeyPolicy(key, policy);
    return { isDone: true, message: `key ${key} from now on: ${policyText(policy)}` };
  },
  async "remove-policy"({ queues }, { text }) {
    const key = text("key");
    const queue = queues.get(text("queue")) ?? missing("queue", text("queue"));
    return outcome(await queue.removeKeyPolicy(key), `key ${key} has no policy any more`, `key ${key} had no policy`);
  },
  async "pause-schedule"(sections, about) {
    await schedulerOf(sections, about).pause(about.text("name"));
    return { isDone: true, message: `schedule ${about.text("name")} is paused` };
  },
  async "resume-schedule"(sections, about) {
    await schedulerOf(sections, about).resume(about.text("name"));
    return { isDone: true, message: `schedule ${about.text("name")} goes on` };
  },
  async "trigger-schedule"(sections, about) {
    await schedulerOf(sections, about).trigger(about.text("name"));
    return { isDone: true, message: `schedule ${about.text("name")} was triggered` };
  },
};

/** Runs the action `name`. @throws UnknownTargetError, RangeError, and the errors of the packages */
export async function act(sections: Sections, name: string, given: URLSearchParams): Promise<ActionOutcome> {
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (action === undefined) throw new UnknownTargetError(`there is no action ${JSON.stringify(name)}`);
  const text = (name: string): string => {
    const value = given.get(name);
    if (value === null || value === "") throw new UnknownTargetError(`${name} is missing`);
    return value;
  };
  return await action(sections, { text, given: (name) => given.get(name) ?? undefined });
}

type OwnMethod = "cancel" | "getJob" | "removeJobs" | "resumeKey";

/** Returns the queue, or the partition, of the key that an action is about. */
function ownerOf({ queues }: Sections, { text }: About): Pick<ExclusiveQueue, OwnMethod> {
  const queue: AskedQueue = queues.get(text("queue")) ?? missing("queue", text("queue"));
  return "queueOf" in queue ? queue.queueOf(text("key")) : queue;
}

/** Returns the limits in the parameters of an action. The workers' packages check their ranges. */
function policyIn(given: About["given"]): KeyPolicy {
  const number = (name: string): number | undefined => {
    const text = given(name);
    if (text === undefined) return undefined;
    if (!/^\d{1,9}$/.test(text)) throw new RangeError(`${name} must be a whole number, got ${JSON.stringify(text)}`);
    return Number(text);
  };
  const [max, duration, most] = [number("rateMax"), number("rateMs"), number("maxWaiting")];
  if ((max === undefined) !== (duration === undefined)) throw new RangeError("rateMax and rateMs belong together");
  return {
    concurrency: number("concurrency"),
    rate: max === undefined || duration === undefined ? undefined : { max, duration },
    maxWaiting:
      most === undefined ? undefined : { max: most, ...(given("drop") === "oldest" ? { drop: "oldest" } : {}) },
    weight: number("weight"),
  };
}

function schedulerOf({ schedulers }: Sections, { text }: About): LeaderScheduler {
  return schedulers.get(text("scheduler")) ?? missing("scheduler", text("scheduler"));
}

function missing(what: string, name: string): never {
  throw new UnknownTargetError(`there is no ${what} ${JSON.stringify(name)} here`);
}
