/** Where the jobs of a queue wait, and the filters of its keys. */
import type { KeyGroups } from "../../src/page/rules/key-groups.ts";
import { tables } from "../model.ts";
import { count, counted, interval } from "../words.ts";
import { Hidden } from "./common.tsx";

/** Chooses a group of keys, or all keys again. */
export function choose(group: string): void {
  const { keyGroup } = tables.value;
  tables.value = { ...tables.value, keys: 0, keyGroup: keyGroup === group ? "" : group };
}

/** The buttons above the table of keys. A state without a key has a button as well, so that no button moves. */
export function KeyFilters({ groups, total }: { readonly groups: KeyGroups; readonly total: number }) {
  const { waiting, limited, paused, halted, stalled } = groups.counts;
  const states = [
    { group: "", text: "All", keys: total },
    { group: "waiting", text: "Waiting", keys: waiting },
    { group: "limited", text: "Limited", keys: limited },
    { group: "paused", text: "Paused", keys: paused },
    { group: "halted", text: "Halted", keys: halted },
    { group: "stalled", text: "Stalled", keys: stalled },
  ];
  return (
    <span class="filters" role="group" aria-label="Show keys">
      {states.map(({ group, text, keys }) => (
        <button
          key={group}
          type="button"
          class="btn"
          aria-pressed={tables.value.keyGroup === group}
          onClick={() => choose(group)}
        >
          {text} <b>{count(keys)}</b>
        </button>
      ))}
    </span>
  );
}

/** Says which group is chosen. Empty if it has a button of its own. */
export function chosenText(): string {
  const [kind, text = ""] = tables.value.keyGroup.split("-");
  if (kind === "line")
    return `Only keys with ${text === "1" ? "1 parked job" : `${count(Number(text))} or more parked jobs`}`;
  return kind === "age" ? `Only keys whose first job waits ${waitText(Number(text))}` : "";
}

/** Two charts. Each bar shows its keys in the table. Small queues need none. */
export function WhereJobsWait({ groups }: { readonly groups: KeyGroups }) {
  const { lines, ages, fifth } = groups;
  const jobs = lines.reduce((sum, each) => sum + each.jobs, 0);
  return (
    <section class="card charts" aria-label="Where the jobs wait">
      <figure>
        <figcaption>
          <b>Parked jobs, by the length of their key's line</b>
          {jobs > 0 &&
            `${counted(fifth, "key")} ${fifth === 1 ? "has" : "have"} a fifth of the jobs; the last line counts keys`}
        </figcaption>
        <div class="hist" role="group" aria-label="Parked jobs by the length of their key's line">
          {lines.map(({ least, jobs, keys }) => (
            <Bar
              key={least}
              group={`line-${least}`}
              value={jobs}
              of={Math.max(...lines.map((each) => each.jobs))}
              what="parked jobs, line of"
              text={least === 1 ? "1" : `${count(least)}+`}
              keys={keys}
            />
          ))}
        </div>
      </figure>
      <figure>
        <figcaption>
          <b>Keys, by how long their first job waits</b>
        </figcaption>
        <div class="hist" role="group" aria-label="Keys by the wait of their first job">
          {ages.map(({ leastMs, keys }) => (
            <Bar
              key={leastMs}
              group={`age-${leastMs}`}
              value={keys}
              of={Math.max(...ages.map((each) => each.keys))}
              what="keys, first job waits"
              text={waitText(leastMs)}
              isLate={leastMs >= LATE_MS}
            />
          ))}
        </div>
      </figure>
    </section>
  );
}

/** A wait that is this long is a problem (see `PARKED_LONG`). */
const LATE_MS = 300_000;

/** The beginning of a group of waits: `1 s +`. */
function waitText(leastMs: number): string {
  return leastMs === 0 ? `< ${interval(1_000)}` : `${interval(leastMs)} +`;
}

interface BarProps {
  readonly group: string;
  readonly value: number;
  /** The greatest value of the chart. */
  readonly of: number;
  /** The words between value and text, for a screen reader. */
  readonly what: string;
  readonly text: string;
  /** The number of keys, if `value` is another number. */
  readonly keys?: number;
  readonly isLate?: boolean;
}

function Bar({ group, value, of, what, text, keys, isLate = false }: BarProps) {
  return (
    <button
      type="button"
      class={isLate && value > 0 ? "late" : undefined}
      aria-pressed={tables.value.keyGroup === group}
      onClick={() => choose(group)}
    >
      <b>{count(value)}</b>
      <Hidden> {what} </Hidden>
      <i style={{ height: `${of === 0 ? 0 : (value / of) * 64}px` }} />
      <span>{text}</span>
      {keys !== undefined && (
        <span class="sub">
          <Hidden>, </Hidden>
          {count(keys)}
          <Hidden> keys</Hidden>
        </span>
      )}
    </button>
  );
}
