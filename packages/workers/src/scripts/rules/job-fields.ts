/** Pure: the short names under which a job's hash stores facts. The Lua is written with these keys, too. */

/** Fields that the lane adds to BullMQ's hash of a job. */
export const JOB = {
  /** The job's keys as one text (see pin.lua.ts), fixed when a worker first looks at the job. Empty if it has none. */
  keys: "lk",
  /** The job's place in line, as long as it is parked. */
  place: "ls",
  /** When the job was parked, by the clock of the worker that parked it. Removed when the job starts. */
  parkedAt: "lp",
  /**
   * Why the job is not to run, or not again: its key function failed, or it gave way to another job. Of a job that a
   * newer one has superseded, the field stays until that job has ended.
   */
  refusal: "lb",
  /** Set on one job of each batch of computed keys: when this job is taken, the keys of further jobs are computed. */
  moreKeys: "la",
  /** The job's place in line for its locks, while it waits for them in `delayed`. */
  lockPlace: "lo",
  /** With `whenBusy: "latest"`: when the job first failed, in arrivals. At its retry the job is as old as it was. */
  firstFailure: "lf",
  /** The outcome that another job's processor call has set. At its turn the job ends with it, and does not run. */
  outcome: "lr",
  /** With rotation: where the turn of the job's key continues after the job. See rotation.lua.ts. */
  turn: "lt",
} as const;

/** Fields of BullMQ's own with short names. */
export const BULL = {
  /** The worker that processes the job. Dashboards show it, so a parked job has a text here that says so. */
  processedBy: "pb",
  /** Set on a job that BullMQ fails when it is taken next, because it stalled too often. */
  deferredFailure: "defa",
  attemptsStarted: "ats",
} as const;
