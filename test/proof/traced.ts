/**
 * The lock mutations of the simulation: mutations that the trace notices, and mutations outside of the model, with the
 * reason.
 */

/** By the name of the mutation: the directed schedule that breaks, or undefined if random schedules break. */
export const NOTICED: Readonly<Record<string, string | undefined>> = {
  "drift margin": "slow clock",
  quarantine: undefined,
  "quarantine: run_id": undefined,
  "token compare": undefined,
  "token compare on the short way": undefined,
  "token compare of a release with waiters": undefined,
  "lock check": undefined,
  "lock check on the short way": undefined,
  "ballot check": undefined,
  "ballot check on the short way": undefined,
  "ballots are stored on the short way": undefined,
  "never shorten an expiry": undefined,
  "a repaired node does not count": undefined,
  "quarantined nodes do not count in an extension": "quarantined extension",
  expiry: undefined,
};

const CLOCKS =
  "The trace compares what nodes do. The model has this protection of the client, and an attack removes it.";
const WITHIN = "It is about calls within one process.";
const LIVENESS = "Without it a key is left behind, or a call waits for too long. The model says nothing of either.";
const RESERVED = "To the model a reservation is a key of another, which may come and go.";
const OPERATOR = "An operator takes a lock away by design.";

export const OUTSIDE: Readonly<Record<string, string>> = {
  "elapsed subtraction": CLOCKS,
  "elapsed subtraction of an extension": CLOCKS,
  "validity check": CLOCKS,
  "late votes do not count": CLOCKS,
  "extension inside validity": CLOCKS,
  "all clocks": CLOCKS,
  "suspends are counted": CLOCKS,
  "forced release": OPERATOR,
  "forced release: tokens of other nodes are exceeded": OPERATOR,
  maxHold: "It only ends a lease earlier than the model does.",
  "a nested call is recognized": WITHIN,
  "joined calls take turns": WITHIN,
  "a lock is kept for the calls that joined it": WITHIN,
  "a joined call is notified of a release outside": WITHIN,
  "a single node counts on from its last token":
    "A node alone numbers its grants. A theorem of its own is about these numbers.",
  "fresh token per attempt": "In the model an attempt has a key of its own.",
  "token compare of a hand-over": RESERVED,
  "the reservation of a single waiter": RESERVED,
  "release to all": LIVENESS,
  "release after a late answer to a waiter": LIVENESS,
  "per-node timeout": LIVENESS,
};
