/**
 * The protections that the proof can leave out, one at a time, to show that each is needed, with the behavior without
 * the protection.
 */
export const PROTECTIONS = {
  "the drift margin": "the whole ttl is trusted",
  "validity counts from the request": "it counts from the last answer",
  "the check of the validity": "a quorum is enough, however late it is",
  "all clocks": "the wall clock is not asked",
  "a majority": "half of the nodes are enough",
  "the lock check": "a greater ballot is enough",
  "the ballot check": "any ballot is granted",
  "the register is raised": "a grant leaves it unchanged",
  "release by token": "a release deletes any key",
  "the quarantine": "a node that lost its data votes immediately",
  "the length of the quarantine": "it takes half as long",
  "ttl is at most maxTtl": "a client asks for twice as much",
  "extension counts from its request": "it counts from the last answer",
  "extension inside the validity": "it may end later",
  "an extension never shortens": "a node sets what was asked for last",
  "one end for all clocks": "each clock takes its later end",
  "a quarantined node does not extend": "it counts",
  "a repaired node does not count": "it counts",
  "late votes do not count": "a vote counts until the validity is over",
  "wall clocks that agree": "they differ by more than the bound",
} as const;

export type Protection = keyof typeof PROTECTIONS;
