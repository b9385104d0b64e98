/** The list of checks, in a dialog. */
import { WORDS } from "./attention.tsx";
import { Hidden } from "./common.tsx";
import { SeverityMark } from "./icons.tsx";

/** The checks, the most severe first. */
const CHECKS: readonly (readonly [severity: keyof typeof WORDS, text: string])[] = [
  ["critical", "A queue has jobs that can run, and no worker of the queue reports"],
  ["critical", "A failed job has halted its key"],
  ["critical", "Fewer lock nodes answer than make a quorum"],
  ["critical", "An election has had no leader for longer than one lease"],
  ["critical", "A worker lost the lock of a running job"],
  ["warning", "Jobs have started, and their workers are gone"],
  ["warning", "The oldest parked job of a key that is not paused waits for more than 5 min"],
  ["warning", "The last two ticks of a schedule failed"],
  ["warning", "A tick was missed in the last 15 min"],
  ["warning", "A lock node does not answer"],
  ["warning", "A lock node is in quarantine"],
  ["warning", "The check of the lock nodes found a fault"],
  ["warning", "A lock was renewed with less than a third of its lease left"],
  ["warning", "The workers of a queue have different options"],
  ["warning", "A queue or an outbox cannot be read"],
  ["notice", "An operator has paused a key"],
  ["notice", "The oldest job of an outbox waits for more than 1 min"],
];

export const Checks = () => (
  <ul class="checks">
    {CHECKS.map(([severity, text]) => (
      <li key={text}>
        <span class={`sev ${severity}`}>
          <SeverityMark severity={severity} />
          <Hidden>{WORDS[severity]}: </Hidden>
        </span>
        {text}
      </li>
    ))}
  </ul>
);
