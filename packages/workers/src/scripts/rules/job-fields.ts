/** Pure: the short names of the facts in a job's hash. The Lua scripts use the same names. */

/** Fields that the lane adds to BullMQ's hash of a job. */
export const JOB = {
  /**
   * The job's keys as one text (see pin.lua.ts), fixed when a worker first looks at the job. Empty for a job without a
   * key.
   */
  keys: "lk",
  /** The job's place in line, as long as it is parked. */
  place: "ls",
  /** When the job was parked, by the clock of the worker that parked it. Removed when the job starts. */
  parkedAt: "lp",
  /**
   * Why the job must not run, or not again: its key function failed, another job goes before, or the job was cancelled.
   * In a superseded or cancelled job, the field remains until the job has ended.
   */
  refusal: "lb",
  /** Set on one job of each batch of computed keys: when this job is taken, the keys of further jobs are computed. */
  moreKeys: "la",
  /** The job's place in line for its locks, while the job waits in `delayed` for the locks. */
  lockPlace: "lo",
  /**
   * With `whenBusy: "latest"`: when the job first failed, in arrivals. The job is as old as this number at its retry.
   */
  firstFailure: "lf",
  /**
   * The outcome that another job's processor call has set. At its turn the job ends with this outcome, and does not
   * run.
   */
  outcome: "lr",
  /** With rotation: where the turn of the job's key continues after the job. See rotation.lua.ts. */
  turn: "lt",
} as const;

/** Fields of BullMQ's own with short names. */
export const BULL = {
  /** The worker that processes the job. In a parked job, a note for dashboards. */
  processedBy: "pb",
  /** Set on a job that BullMQ fails when it is taken next, because it stalled too often. */
  deferredFailure: "defa",
  attemptsStarted: "ats",
} as const;
