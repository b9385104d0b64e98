/** Actions of the page. Each action calls one method of the packages, with that method's own safety. */
import type { LeaderScheduler } from "@x/leader/scheduler";
import { cancelledText } from "./rules/words.ts";
import type { Watch } from "./watch.ts";

/** The outcome of an action, in words. */
export interface ActionOutcome {
  readonly isDone: boolean;
  readonly message: string;
}

type Action = (watch: Watch, about: About) => Promise<ActionOutcome>;

/** The parameters of an action. */
interface About {
  readonly text: (name: string) => string;
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
  async "cancel-job"({ queues }, { text }) {
    const jobId = text("jobId");
    const queue = queues.get(text("queue")) ?? missing("queue", text("queue"));
    const owner = "queueOf" in queue ? queue.queueOf(text("key")) : queue;
    const found = await owner.cancel(jobId, "cancelled on the page");
    return { isDone: found !== "unknown", message: cancelledText(jobId, found) };
  },
  async "remove-policy"({ queues }, { text }) {
    const key = text("key");
    const queue = queues.get(text("queue")) ?? missing("queue", text("queue"));
    return outcome(await queue.removeKeyPolicy(key), `key ${key} has no policy any more`, `key ${key} had no policy`);
  },
  async "pause-schedule"(watch, about) {
    await schedulerOf(watch, about).pause(about.text("name"));
    return { isDone: true, message: `schedule ${about.text("name")} is paused` };
  },
  async "resume-schedule"(watch, about) {
    await schedulerOf(watch, about).resume(about.text("name"));
    return { isDone: true, message: `schedule ${about.text("name")} goes on` };
  },
  async "trigger-schedule"(watch, about) {
    await schedulerOf(watch, about).trigger(about.text("name"));
    return { isDone: true, message: `schedule ${about.text("name")} was triggered` };
  },
};

/** Runs the action `name`. @throws UnknownTargetError, RangeError, and the errors of the packages */
export async function act(watch: Watch, name: string, given: URLSearchParams): Promise<ActionOutcome> {
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (action === undefined) throw new UnknownTargetError(`there is no action ${JSON.stringify(name)}`);
  const text = (name: string): string => {
    const value = given.get(name);
    if (value === null || value === "") throw new UnknownTargetError(`${name} is missing`);
    return value;
  };
  return await action(watch, { text });
}

function schedulerOf({ schedulers }: Watch, { text }: About): LeaderScheduler {
  return schedulers.get(text("scheduler")) ?? missing("scheduler", text("scheduler"));
}

function missing(what: string, name: string): never {
  throw new UnknownTargetError(`there is no ${what} ${JSON.stringify(name)} here`);
}
