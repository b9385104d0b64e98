/**
 * Pure: what needs attention. The page, `x-console check` and `x-console problems` share these checks.
 *
 * - Critical: a queue has work and no worker; a key is halted; no quorum; no leader; a lock was lost.
 * - Warning: stalled jobs; a long wait for a key; a failing schedule; a missed tick; a node is down or in quarantine; a
 *   late renewal; workers differ; something cannot be read.
 * - Notice: a key is paused; a queue is only watched; an outbox has a backlog.
 *
 * A queue without a job and without a worker is not a problem.
 */
import type { Finding } from "@x/redlock-core";
import type {
  ElectionView,
  NodesView,
  OutboxView,
  PageSection,
  Problem,
  ProblemCode,
  ProblemView,
  ProcessView,
  QueueView,
  ScheduleView,
  Severity,
} from "../state.ts";
import { countedText, countText, durationText, earlyText, nameText, shellWord } from "./words.ts";

/** The parts of a state that the checks read. A part that was not read is empty. */
export interface Checked {
  readonly now: number;
  readonly nodes: PageSection<NodesView>;
  readonly findings: readonly Finding[];
  readonly processes: readonly ProcessView[];
  readonly elections: readonly ElectionView[];
  /** All schedules, not those of one page. */
  readonly schedules: readonly ScheduleView[];
  readonly queues: readonly QueueView[];
  readonly outboxes: readonly OutboxView[];
}

/** The first job in line of a key may wait for this long. */
const LONG_WAIT_MS = 5 * 60_000;
/** The oldest job of an outbox may wait for this long. */
const OUTBOX_WAIT_MS = 60_000;
/** A missed tick and a lost lock need attention for this long. */
const RECENT_MS = 15 * 60_000;
/** A solved problem is shown for this long. */
const SOLVED_MS = 5 * 60_000;
/** The most problems of a state. The most severe are kept. */
const MOST_PROBLEMS = 100;
/** Keys of a queue that have a problem of their own. More keys share one. */
const OWN_PROBLEMS = 3;

const SEVERITY: Readonly<Record<ProblemCode, Severity>> = {
  NO_WORKER: "critical",
  KEY_HALTED: "critical",
  NO_QUORUM: "critical",
  NO_LEADER: "critical",
  LOCK_LOST: "critical",
  JOBS_STALLED: "warning",
  PARKED_LONG: "warning",
  SCHEDULE_FAILING: "warning",
  TICK_MISSED: "warning",
  NODE_DOWN: "warning",
  NODE_QUARANTINED: "warning",
  NODE_FINDING: "warning",
  RENEWED_LATE: "warning",
  WORKERS_DIFFER: "warning",
  NOT_READ: "warning",
  KEY_PAUSED: "notice",
  QUEUE_WATCHED: "notice",
  OUTBOX_BACKLOG: "notice",
};
const ORDER: readonly Severity[] = ["critical", "warning", "notice"];

/** Findings that the rows of the nodes report with less delay. */
const REPORTED_ELSEWHERE: ReadonlySet<string> = new Set(["UNREACHABLE", "QUARANTINED"]);

/** A problem without the facts that follow from its code. */
type Found = Omit<Problem, "id" | "severity"> & { readonly id?: string; readonly severity?: Severity };

/** Returns the problems of a state, at most 100, the most severe first. Empty if all is well. */
export function problemsOf(state: Checked): readonly Problem[] {
  const found = [
    ...problemsOfNodes(state),
    ...state.elections.flatMap((election) => problemsOfElection(election, state.now)),
    ...state.schedules.flatMap((schedule) => problemsOfSchedule(schedule, state.now)),
    ...state.queues.flatMap((queue) => problemsOfQueue(queue, state.now)),
    ...state.processes.flatMap((process) => lostLocksOf(process, state.now)),
    ...state.outboxes.flatMap(problemsOfOutbox),
  ];
  return found
    .map(({ code, severity = SEVERITY[code], id = "", ...rest }): Problem => {
      const { queue = "", key = "", name = "" } = rest.place;
      return { id: JSON.stringify([code, queue, key, name, id]), code, severity, ...rest };
    })
    .toSorted((one, other) => ORDER.indexOf(one.severity) - ORDER.indexOf(other.severity))
    .slice(0, MOST_PROBLEMS);
}

/**
 * Returns the problems as the page shows them: `found` with the time at which each began, followed by the problems of
 * `before` that have been solved in the last 5 min.
 */
export function trackedProblems(
  before: readonly ProblemView[],
  found: readonly Problem[],
  now: number,
): readonly ProblemView[] {
  const known = new Map(before.map((problem) => [problem.id, problem]));
  const open = found.map((problem): ProblemView => {
    const earlier = known.get(problem.id);
    const since = problem.since ?? (earlier?.solvedAt === undefined ? earlier?.since : undefined) ?? now;
    return { ...problem, since, solvedAt: undefined };
  });
  const ids = new Set(found.map(({ id }) => id));
  const solved = before
    .filter(({ id }) => !ids.has(id))
    .map((problem) => ({ ...problem, solvedAt: problem.solvedAt ?? now }))
    .filter(({ solvedAt }) => now - solvedAt < SOLVED_MS)
    .toSorted((one, other) => other.solvedAt - one.solvedAt);
  return [...open, ...solved];
}

/** Returns the title with the time that has passed: `… for 4 min 2 s`. */
export function titleWithTime({ title, since }: Pick<Problem, "title" | "since">, now: number): string {
  return since === undefined ? title : `${title}, for ${durationText(Math.max(0, now - since))}`;
}

function problemsOfNodes({ nodes, findings }: Checked): readonly Found[] {
  const { value, error } = nodes;
  const found: Found[] = [];
  if (value === undefined) {
    if (error !== undefined) found.push(noQuorum(`The lock nodes cannot be read: ${error}`, nodes.at));
  } else if (value.answering < value.quorum) {
    const { answering, quorum, isCluster } = value;
    const all = value.nodes.length;
    const title = isCluster
      ? `${answering} of ${all} masters answer, and each has locks of its own`
      : `${answering} of ${countedText(all, "lock node")} answer, and ${quorum} are needed`;
    found.push(noQuorum(title, nodes.at));
  }
  for (const { node, error: nodeError, downSince, quarantineLeftMs = 0 } of value?.nodes ?? []) {
    const place = { section: "nodes", name: node } as const;
    if (nodeError !== undefined) {
      found.push({
        code: "NODE_DOWN",
        title: `Lock node ${nameText(node)} does not answer: ${nodeError}`,
        step: "Start the node. The locks hold as long as a quorum answers.",
        command: "npx @x/console check",
        place,
        since: downSince,
      });
    } else if (quarantineLeftMs > 0) {
      found.push({
        code: "NODE_QUARANTINED",
        title: `Lock node ${nameText(node)} is in quarantine, because it has restarted`,
        step: "Wait until the quarantine ends. A node that keeps its data across restarts needs none.",
        place,
      });
    }
  }
  for (const { code, severity, subjects, message } of findings) {
    if (severity === "info" || (value !== undefined && REPORTED_ELSEWHERE.has(code))) continue;
    found.push({
      id: `${code} ${subjects.join(" ")}`,
      code: "NODE_FINDING",
      severity: severity === "error" ? "critical" : "warning",
      title: `${code}: ${message}`,
      step: "Correct the setup of the lock nodes.",
      command: "npx @x/console check",
      place: { section: "nodes", name: subjects[0] },
    });
  }
  return found;
}

function noQuorum(title: string, since: number | undefined): Found {
  return {
    code: "NO_QUORUM",
    title,
    step: "Start the lock nodes. Until a quorum answers, no lock is granted or extended.",
    command: "npx @x/console check",
    place: { section: "nodes" },
    since,
  };
}

function problemsOfElection(election: ElectionView, now: number): readonly Found[] {
  const { name, state, leader, leaderlessSince, leaseMs = 0 } = election;
  const place = { section: "time", name } as const;
  const command = `npx @x/console leader status ${shellWord(name)}`;
  if (state === "gap" && leaderlessSince !== undefined && now - leaderlessSince > leaseMs) {
    return [
      {
        code: "NO_LEADER",
        title: `Election ${nameText(name)} has no leader`,
        step: "Start a process that runs for this election. Its schedules do not run meanwhile.",
        command,
        place,
        since: leaderlessSince,
      },
    ];
  }
  if (leader !== undefined && leaseMs > 0 && leader.expiresInMs < leaseMs / 3) {
    return [
      {
        code: "RENEWED_LATE",
        title: `${nameText(leader.id)}, the leader of ${nameText(name)}, renews its lease late`,
        step: "Look for a blocked event loop or slow lock nodes. Without a renewal the term ends.",
        command,
        place,
      },
    ];
  }
  return [];
}

function problemsOfSchedule(schedule: ScheduleView, now: number): readonly Found[] {
  const { scheduler, election, name, outcome, failure, tickAt, history } = schedule;
  const place = { section: "time", name } as const;
  const command =
    election === undefined ? undefined : `npx @x/console schedules history ${shellWord(election)} ${shellWord(name)}`;
  const ended = history.filter((tick) => tick.outcome !== "running" && tick.outcome !== "skipped");
  const failed = ended.findIndex((tick) => tick.outcome !== "failed" && tick.outcome !== "unfinished");
  const inARow = failed === -1 ? ended.length : failed;
  const found: Found[] = [];
  if (inARow >= 2) {
    const row = inARow === ended.length && ended.length > 2 ? `the last ${inARow} ticks` : countedText(inARow, "tick");
    found.push({
      code: "SCHEDULE_FAILING",
      id: scheduler,
      title: `Schedule ${nameText(name)} has failed ${row} in a row${failure === undefined ? "" : `: ${failure}`}`,
      step: "Correct the handler. The next tick runs as planned.",
      command,
      place,
      since: ended[inARow - 1]?.at,
    });
  }
  const missedAt = outcome === "missed" ? tickAt : history.find((tick) => tick.outcome === "missed")?.at;
  if (missedAt !== undefined && now - missedAt < RECENT_MS) {
    found.push({
      code: "TICK_MISSED",
      id: scheduler,
      title: `Schedule ${nameText(name)} has missed a tick`,
      step: "Look for a time without a leader. Trigger the schedule if the tick is needed.",
      command,
      place,
      since: missedAt,
      action: {
        do: "trigger-schedule",
        label: "Trigger",
        effect: `The leader runs ${nameText(name)} once, now.`,
        parameters: { scheduler, name },
      },
    });
  }
  return found;
}

function problemsOfQueue(queue: QueueView, now: number): readonly Found[] {
  const { name, error, at, runnable, parked, stopped, stalled, running, workers, oldest } = queue;
  const shown = nameText(name);
  const place = { section: "queues", queue: name } as const;
  const found: Found[] = [];
  const unread = at === undefined ? undefined : { since: at };
  if (error !== undefined) {
    found.push({
      code: "NOT_READ",
      title: `Queue ${shown} cannot be read: ${error}`,
      step: "Look at the Redis of this queue. The page shows what was last known.",
      place,
      ...unread,
    });
  }
  const todo = runnable + Math.max(0, parked - stopped) + stalled;
  if (workers === 0 && running === 0 && todo > 0 && !queue.isPaused) {
    const waiting = [
      ...(runnable > 0 ? [`${countText(runnable)} can run`] : []),
      ...(parked > 0 ? [`${countText(parked)} wait for their key`] : []),
      ...(stalled > 0 ? [`${countText(stalled)} had started`] : []),
    ];
    found.push({
      code: "NO_WORKER",
      title: `Queue ${shown} has no worker, and of its jobs ${waiting.join(", ")}`,
      step: "Start a worker of this queue.",
      command: `npx @x/console keys policy ${shellWord(name)}`,
      place: { ...place, section: "workers" },
      since: queue.reportedAt,
    });
  } else if (stalled > 0) {
    found.push({
      code: "JOBS_STALLED",
      title: `${countedText(stalled, "job")} of queue ${shown} had started, and ${stalled === 1 ? "its worker is" : "their workers are"} gone`,
      step: "Nothing, if a worker runs: the worker moves them on within its stalledInterval.",
      command: `npx @x/console keys top ${shellWord(name)}`,
      place,
    });
  }
  found.push(...haltedKeysOf(queue), ...pausedKeysOf(queue));
  if (queue.watched !== undefined) {
    found.push({
      code: "QUEUE_WATCHED",
      title: `Queue ${shown} is only watched: ${earlyText(queue.watched)}`,
      step: "Make the queue exclusive when all its workers are ExclusiveWorkers.",
      command: `npx @x/console keys exclusion ${shellWord(name)} on`,
      place,
      since: queue.watched.watchedSinceMs,
    });
  }
  if (oldest !== undefined && now - oldest.since > LONG_WAIT_MS) {
    found.push({
      code: "PARKED_LONG",
      title: `A job of queue ${shown} waits for key ${nameText(oldest.key)}`,
      step: "See which job has the key.",
      command: `npx @x/console keys jobs ${shellWord(name)} ${shellWord(oldest.key)}`,
      place: { ...place, key: oldest.key },
      since: oldest.since,
    });
  }
  for (const difference of queue.differences) {
    found.push({
      id: difference,
      code: "WORKERS_DIFFER",
      title: `The workers of queue ${shown} differ: ${difference}`,
      step: "Give all workers of the queue the same options.",
      command: `npx @x/console keys policy ${shellWord(name)}`,
      place: { ...place, section: "workers" },
    });
  }
  return found;
}

function haltedKeysOf({ name, halted, haltedKeys }: QueueView): readonly Found[] {
  const place = { section: "queues", queue: name } as const;
  const step = "Correct the cause, retry the failed job, then resume the key. Resuming alone skips the job.";
  const own = haltedKeys > OWN_PROBLEMS ? [] : halted;
  const found = own.map(({ key, jobId, parked, since }): Found => {
    const jobs = parked === 0 ? "no job waits" : `${countedText(parked, "job")} ${parked === 1 ? "waits" : "wait"}`;
    const words = `${shellWord(name)} ${shellWord(key)}`;
    return {
      code: "KEY_HALTED",
      title: `Key ${nameText(key)} of queue ${nameText(name)} is halted after job ${nameText(jobId ?? "")} failed, and ${jobs}`,
      step,
      command: `npx @x/console keys retry ${shellWord(name)} ${shellWord(jobId ?? "")} && npx @x/console keys resume ${words}`,
      action: {
        do: "retry-job",
        label: "Retry, then resume",
        effect:
          `Job ${nameText(jobId ?? "")} of key ${nameText(key)} runs again first. ` +
          (parked === 0
            ? "No other job waits."
            : `${countedText(parked, "job")} ${parked === 1 ? "follows" : "follow"} in order.`),
        parameters: { queue: name, key, jobId: jobId ?? "" },
      },
      place: { ...place, key },
      since,
    };
  });
  if (own.length > 0 || haltedKeys === 0) return found;
  return [
    {
      code: "KEY_HALTED",
      title: `${countedText(haltedKeys, "key")} of queue ${nameText(name)} are halted after a failed job`,
      step,
      command: `npx @x/console keys top ${shellWord(name)}`,
      place,
      since: Math.min(...halted.map(({ since }) => since)),
    },
  ];
}

function pausedKeysOf({ name, paused, pausedKeys, haltedKeys }: QueueView): readonly Found[] {
  const [first] = paused;
  const count = pausedKeys - haltedKeys;
  if (first === undefined || count <= 0) return [];
  const place = { section: "queues", queue: name } as const;
  return [
    {
      code: "KEY_PAUSED",
      title:
        count === 1
          ? `Key ${nameText(first.key)} of queue ${nameText(name)} is paused: ${nameText(first.reason)}`
          : `${countedText(count, "key")} of queue ${nameText(name)} are paused`,
      step: "Resume the key when the reason is gone.",
      command:
        count === 1
          ? `npx @x/console keys resume ${shellWord(name)} ${shellWord(first.key)}`
          : `npx @x/console keys top ${shellWord(name)}`,
      place: count === 1 ? { ...place, key: first.key } : place,
      since: Math.min(...paused.map(({ since }) => since)),
    },
  ];
}

function lostLocksOf({ at, workers }: ProcessView, now: number): readonly Found[] {
  return workers.flatMap(({ queue, locksLost, lockLostAt }): readonly Found[] => {
    if (lockLostAt === undefined || now - lockLostAt >= RECENT_MS) return [];
    return [
      {
        code: "LOCK_LOST",
        id: at,
        title: `Worker ${nameText(at)} of queue ${nameText(queue)} has lost ${countedText(locksLost ?? 1, "lock")} while jobs ran`,
        step: "Look for a blocked event loop, a frozen machine or a long outage. Check what those jobs wrote.",
        place: { section: "workers", queue, name: at },
        since: lockLostAt,
      },
    ];
  });
}

function problemsOfOutbox({ name, rows, oldestMs, growth = 0, error, at }: OutboxView): readonly Found[] {
  const place = { section: "queues", name } as const;
  if (error !== undefined) {
    return [
      {
        code: "NOT_READ",
        title: `Outbox ${nameText(name)} cannot be read: ${error}`,
        step: "Look at the database of this outbox.",
        place,
        since: at,
      },
    ];
  }
  if (rows === 0 || oldestMs <= OUTBOX_WAIT_MS) return [];
  const trend = growth > 0 ? ", and their number grows" : "";
  return [
    {
      code: "OUTBOX_BACKLOG",
      title: `${countedText(rows, "job")} of outbox ${nameText(name)} ${rows === 1 ? "waits" : "wait"} for a relay${trend}`,
      step: "Look whether a relay of this outbox runs.",
      place,
    },
  ];
}
