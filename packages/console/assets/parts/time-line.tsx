/** Lock nodes, elections and schedules on one axis. Causes stand left of effects. */
import { effect, signal } from "@preact/signals";
import type { ElectionView, NodeView, ScheduleView, TickMark } from "../../src/page/state.ts";
import { axisOf, endOf, flagsOf, type Gap, gapsOf, type Span, spanOf } from "../figures.ts";
import { isLive, now, state, tables } from "../model.ts";
import { clock, count, counted, duration, latency, moment, printable, shortClock, wholeDuration } from "../words.ts";
import { colourClass, More, Pages, Section } from "./common.tsx";
import { Later } from "./later.tsx";

const RANGES = [
  { text: "2 min", ms: 120_000 },
  { text: "15 min", ms: 900_000 },
  { text: "1 h", ms: 3_600_000 },
  { text: "6 h", ms: 21_600_000 },
];
const range = signal(900_000);
const isTable = signal(false);

/** The part of the axis right of "now", for ticks that are due. */
const FUTURE = 1 / 16;

/** The states of the nodes as this browser saw them: the latest 50 changes per node, the oldest first. */
type NodeState = "answers" | "away" | "quarantine" | "unseen";
const seen = new Map<string, { readonly at: number; readonly state: NodeState }[]>();

function stateOf({ error, quarantineLeftMs = 0 }: NodeView): NodeState {
  return error !== undefined ? "away" : quarantineLeftMs > 0 ? "quarantine" : "answers";
}

// Runs once per state.
effect(() => {
  const { nodes, now } = state.value ?? {};
  for (const node of nodes?.value?.nodes ?? []) {
    const changes = seen.get(node.node) ?? [];
    seen.set(node.node, changes);
    const next = stateOf(node);
    const { downSince = now ?? 0 } = node;
    if (changes.at(-1)?.state !== next) changes.push({ at: next === "away" ? downSince : (now ?? 0), state: next });
    if (changes.length > 50) changes.shift();
  }
});

interface Axis {
  readonly from: number;
  readonly to: number;
  readonly now: number;
}

export function axis(): Axis {
  // All moves by whole pixels at most once a second.
  const at = now.value;
  return { from: at - range.value, to: at + range.value * FUTURE, now: at };
}

const left = (at: number, { from, to }: Axis): string => `${(((at - from) / (to - from)) * 100).toFixed(2)}%`;
const placed = (span: Span): { left: string; width: string } => ({
  left: `${span.left.toFixed(2)}%`,
  width: `${span.width.toFixed(2)}%`,
});

export function TimeLine() {
  const { elections = [], schedules, nodes } = state.value ?? {};
  const present = elections.filter((each) => each.state !== "ended");
  const ended = elections.filter((each) => each.state === "ended");
  const list = schedules?.value?.schedules ?? [];
  const total = schedules?.value?.total ?? 0;
  const names = present.map(({ name }) => name);
  const others = list.filter(({ election = "" }) => !names.includes(election));
  return (
    <Section
      id="time"
      title="Time line"
      at={nodes?.at}
      note={`${counted(present.length, "election")}, ${counted(total, "schedule")}`}
      end={
        <>
          <Legend />
          <button
            type="button"
            class="btn quiet"
            aria-pressed={isTable.value}
            onClick={() => (isTable.value = !isTable.value)}
          >
            As a table
          </button>
          <span class="seg" role="group" aria-label="Time range">
            {RANGES.map(({ text, ms }) => (
              <button key={ms} type="button" aria-pressed={range.value === ms} onClick={() => (range.value = ms)}>
                {text}
              </button>
            ))}
          </span>
        </>
      }
    >
      {isTable.value ? (
        <Later show={({ Happened }) => <Happened />} />
      ) : (
        <div class="tl">
          <div class="axis" />
          <Over />
          <div class="rows">
            <div class="grp">Lock nodes</div>
            {(nodes?.value?.nodes ?? []).map((node, at) => (
              <NodeRow key={`${at} ${node.node}`} node={node} />
            ))}
            {present.map((election) => (
              <Election
                key={election.name}
                election={election}
                schedules={list.filter((each) => each.election === election.name)}
              />
            ))}
            {others.map((schedule) => (
              <Schedule key={`${schedule.scheduler} ${schedule.name}`} schedule={schedule} />
            ))}
            {present.length === 0 && total === 0 && <p class="grp">No election has been found.</p>}
          </div>
        </div>
      )}
      {!isTable.value && <Marks />}
      {total > 25 && (
        <Pages
          page={tables.value.schedules}
          rows={list.length}
          of={total}
          noun="schedules"
          go={(page) => (tables.value = { ...tables.value, schedules: page })}
        />
      )}
      {ended.length > 0 && (
        <details class="fold">
          <summary>{counted(ended.length, "election")} without a leader for an hour</summary>
          <p class="mono">{ended.map(({ name }) => printable(name)).join(", ")}</p>
        </details>
      )}
    </Section>
  );
}

const Legend = () => (
  <>
    <span class="key">
      <i class="done" />
      ran
    </span>
    <span class="key">
      <svg class="tick" width="9" height="9" viewBox="0 0 9 9" aria-hidden="true">
        <path class="failed" d="M1 1l7 7M8 1L1 8" />
      </svg>
      failed
    </span>
    <span class="key">
      <svg class="tick" width="8" height="10" aria-hidden="true">
        <rect class="missed" x="1" y="1" width="5" height="8" rx="1" />
      </svg>
      missed
    </span>
    <span class="key">
      <svg class="tick" width="9" height="9" aria-hidden="true">
        <circle class="due" cx="4.5" cy="4.5" r="3" />
      </svg>
      due
    </span>
    <span class="key">
      <i class="hatched" />
      no leader
    </span>
  </>
);

/** Grid, "now", and the flags of the marks. */
function Over() {
  const shown = axis();
  const marks = marksIn(shown);
  return (
    <div class="over" aria-hidden="true">
      <i class="fut" style={{ left: left(shown.now, shown) }} />
      {axisOf(shown.from, shown.to, 6).map((at, index) => (
        <span key={at}>
          <i class="g" style={{ left: left(at, shown) }} />
          {/* The label of "now" needs the place. */}
          {Math.abs(at - shown.now) > range.value / (isLive.value ? 18 : 11) && (
            <span class={index % 2 === 1 ? "t odd" : "t"} style={{ left: left(at, shown) }}>
              {range.value < 900_000 ? clock(at) : shortClock(at)}
            </span>
          )}
        </span>
      ))}
      <i class="now" style={{ left: left(shown.now, shown) }} />
      <span class="nowt" style={{ left: left(shown.now, shown) }}>
        {isLive.value ? "now" : clock(shown.now)}
      </span>
      {marks.map(({ at }, index) => (
        <i key={index} class="m" style={{ left: left(at, shown) }} />
      ))}
      {flagsOf(marks, range.value / 40).map(({ at, numbers }) => (
        <span key={at} class="f" style={{ left: left(at, shown) }}>
          {numbers.length > 3 ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(" · ")}
        </span>
      ))}
    </div>
  );
}

/** The marks in the window, the oldest first. */
export function marksIn({ from }: Axis) {
  return (state.value?.events ?? []).filter(({ at }) => at >= from).toReversed();
}

/** The most marks that are listed below the time line. */
const MOST_MARKS = 8;

function Marks() {
  const marks = marksIn(axis());
  if (marks.length === 0) return null;
  const first = Math.max(0, marks.length - MOST_MARKS);
  return (
    <ol class="marks">
      {marks.slice(first).map(({ at, text, kind }, index) => (
        <li key={`${at} ${text}`} class={kind === "fault" ? "fault" : undefined}>
          <span class="n" aria-hidden="true">
            {first + index + 1}
          </span>
          <span>
            {clock(at)} {printable(text)}
          </span>
        </li>
      ))}
    </ol>
  );
}

function NodeRow({ node }: { readonly node: NodeView }) {
  const shown = axis();
  const changes = seen.get(node.node) ?? [];
  const spans = changes.flatMap(({ at, state }, index) => {
    const span = spanOf(at, changes[index + 1]?.at ?? shown.now, shown.from, shown.to);
    return span === undefined ? [] : [{ span, state }];
  });
  const { error, quarantineLeftMs = 0, downSince, tookMs } = node;
  const away = downSince === undefined ? "no answer" : `no answer for ${wholeDuration(shown.now - downSince)}`;
  return (
    <div class="row nd">
      <div class="lab mono">{printable(node.node)}</div>
      <div class="lane" role="img" aria-label={`${printable(node.node)}: ${error === undefined ? "answers" : away}`}>
        {spans.map(({ span, state }, at) => (
          <i key={at} class={`nb ${state}`} style={placed(span)} />
        ))}
      </div>
      <div class="st">
        <span>
          {error !== undefined ? (
            <span class="bad">{away}</span>
          ) : quarantineLeftMs > 0 ? (
            <span class="warn">quarantine, {wholeDuration(quarantineLeftMs)} more</span>
          ) : (
            <>
              answers in <b>{latency(tookMs)}</b>
            </>
          )}
        </span>
      </div>
    </div>
  );
}

function Election({
  election,
  schedules,
}: {
  readonly election: ElectionView;
  readonly schedules: readonly ScheduleView[];
}) {
  const shown = axis();
  const name = printable(election.name);
  const gaps = gapsOf(election, shown.now);
  return (
    <>
      <div class="row el" data-election={election.name}>
        <div class="lab">
          {name} <small>election</small>
        </div>
        <div class="lane" role="img" aria-label={electionLabel(election, gaps, shown)}>
          {election.terms.map((term) => {
            const { known, latest } = endOf(term, shown.now);
            const [span, unknown] = [
              spanOf(term.since, known, shown.from, shown.to),
              spanOf(known, latest, shown.from, shown.to),
            ];
            return (
              <span key={term.term}>
                {span !== undefined && (
                  <i
                    class={`term ${colourClass(term.id)}`}
                    style={placed(span)}
                    title={`${term.id}, term ${term.term}, since ${clock(term.since)}`}
                  >
                    {span.width > 4 ? printable(term.id) : ""}
                  </i>
                )}
                {unknown !== undefined && unknown.width > 0 && <i class="nodata" style={placed(unknown)} />}
              </span>
            );
          })}
          {gaps.map(({ since, until }) => {
            const span = spanOf(since, until, shown.from, shown.to);
            if (span === undefined) return null;
            return (
              <span key={since}>
                <i class="gap" style={placed(span)} />
                {/* A hand-over takes less than half a second. */}
                {until - since >= 500 && (
                  <span
                    class="gaplab"
                    style={
                      span.left > 15
                        ? { right: `calc(${(100 - span.left).toFixed(2)}% + 5px)` }
                        : { left: `calc(${(span.left + span.width).toFixed(2)}% + 5px)` }
                    }
                  >
                    {duration(until - since)} no leader
                  </span>
                )}
              </span>
            );
          })}
        </div>
        <div class="st">
          <span>{leaderText(election, shown.now)}</span>
          <More label={`election ${name}`} open={{ kind: "election", name: election.name }} />
        </div>
      </div>
      {schedules.map((schedule) => (
        <Schedule key={`${schedule.scheduler} ${schedule.name}`} schedule={schedule} />
      ))}
    </>
  );
}

function leaderText({ state, leader, leaderlessSince, error, terms }: ElectionView, at: number) {
  if (!isLive.value || state === "unknown") {
    const last = leader?.id ?? terms.at(-1)?.id;
    return (
      <>
        not known
        {/* While no quorum answers, each node's row has the error. */}
        {isLive.value && error !== undefined && `: ${printable(error)}`}
        {last !== undefined && (
          <>
            , was <b>{printable(last)}</b>
          </>
        )}
      </>
    );
  }
  if (leader === undefined)
    return (
      <span class="bad">
        nobody leads{leaderlessSince !== undefined && ` for ${wholeDuration(at - leaderlessSince)}`}
      </span>
    );
  return (
    <span title={leader.value}>
      <b>{printable(leader.id)}</b> leads for {wholeDuration(at - leader.since)}
    </span>
  );
}

function electionLabel({ name, terms, leader }: ElectionView, gaps: readonly Gap[], { from, now }: Axis): string {
  const shown = terms.filter(({ until }) => (until ?? now) >= from);
  const texts = shown
    .slice(-5)
    .map(({ id, since, until }) => `${id} from ${clock(since)} to ${until === undefined ? "now" : clock(until)}`);
  const without = gaps
    .filter(({ until }) => until >= from)
    .slice(-3)
    .map(({ since, until }) => `nobody for ${duration(until - since)} from ${clock(since)}`);
  return printable(
    `Election ${name}: ${[...texts, ...without].join(", ") || (leader === undefined ? "no leader" : "")}`,
  );
}

export const TICK_WORDS: Readonly<Record<TickMark["outcome"], string>> = {
  run: "ran",
  running: "runs",
  skipped: "skipped",
  failed: "failed",
  unfinished: "not finished",
  missed: "missed",
};

function Schedule({ schedule }: { readonly schedule: ScheduleView }) {
  const shown = axis();
  const { name, scheduler, history, next } = schedule;
  const marks = history.filter(({ at }) => at >= shown.from && at <= shown.to);
  const tally = new Map<string, number>();
  for (const { outcome } of history) tally.set(TICK_WORDS[outcome], (tally.get(TICK_WORDS[outcome]) ?? 0) + 1);
  const said = [...tally].map(([word, times]) => `${times} ${word}`).join(", ");
  return (
    <div class="row sc" data-schedule={name}>
      <div class="lab">{printable(name)}</div>
      <div class="lane" role="img" aria-label={`${printable(name)}, last ticks: ${said === "" ? "none" : said}`}>
        <svg aria-hidden="true" class="tick">
          {marks.map(({ at, outcome }) => (
            <Mark key={`${at} ${outcome}`} x={left(at, shown)} outcome={outcome} />
          ))}
          {next !== undefined && next > shown.now && next <= shown.to && (
            <circle class="due" cx={left(next, shown)} cy="12" r="3.5" />
          )}
        </svg>
      </div>
      <div class="st">
        <span>
          <ScheduleState schedule={schedule} at={shown.now} />
        </span>
        <More label={`schedule ${printable(name)}`} open={{ kind: "schedule", scheduler, name }} />
      </div>
    </div>
  );
}

/** Outcomes differ in shape, not only in colour. */
function Mark({ x, outcome }: { readonly x: string; readonly outcome: TickMark["outcome"] }) {
  switch (outcome) {
    case "failed":
    case "unfinished":
      return (
        <svg x={x} y="6" width="12" height="12" overflow="visible">
          <path class="failed" d="M-4 1l8 9M4 1l-8 9" />
        </svg>
      );
    case "missed":
      return <rect class="missed" x={x} y="5" width="6" height="14" rx="1" />;
    case "skipped":
      return <rect class="skipped" x={x} y="11" width="3" height="6" rx="1" />;
    case "running":
      return <rect class="running" x={x} y="7" width="4" height="10" rx="1" />;
    case "run":
      return <rect class="ran" x={x} y="8" width="2.5" height="8" rx="1" />;
  }
}

function ScheduleState({ schedule, at }: { readonly schedule: ScheduleView; readonly at: number }) {
  const { outcome, tookMs, next, paused, running, missed, history, tickAt } = schedule;
  const failures = history.findIndex((each) => each.outcome !== "failed");
  const row = failures === -1 ? history.length : failures;
  const due = next === undefined ? "" : next > at ? `next in ` : "due";
  return (
    <>
      {paused ? (
        <span class="warn">paused</span>
      ) : row > 1 ? (
        <span class="bad">failed {count(row)} times</span>
      ) : outcome === undefined ? (
        "not run yet"
      ) : outcome === "failed" || outcome === "missed" || outcome === "unfinished" ? (
        <span class="bad">
          {TICK_WORDS[outcome]}
          {tickAt !== undefined && ` ${moment(tickAt, at)}`}
        </span>
      ) : (
        <>
          {TICK_WORDS[outcome]}
          {tookMs !== undefined && ` in ${latency(tookMs)}`}
        </>
      )}
      {running > 0 && outcome !== "running" && ` · ${count(running)} running`}
      {missed > 0 && <span class="opt"> · {count(missed)} missed</span>}
      {!paused && due !== "" && (
        <>
          {" · "}
          {isLive.value ? due : "was due "}
          {next !== undefined && next > at && isLive.value && <b>{wholeDuration(next - at)}</b>}
          {!isLive.value && next !== undefined && clock(next)}
        </>
      )}
    </>
  );
}
