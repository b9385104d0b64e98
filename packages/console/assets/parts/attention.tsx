/** The verdict, and a row for each problem with its next step. */
import type { ComponentChildren } from "preact";
import type { PagePlace, ProblemView } from "../../src/page/state.ts";
import { perMinute } from "../figures.ts";
import { dialog, hashOf, isLive, now, serverError, state } from "../model.ts";
import { clock, count, counted, dayClock, duration, printable, wholeDuration } from "../words.ts";
import { Action, Command } from "./common.tsx";
import { Glyph, SeverityMark } from "./icons.tsx";

export function Attention() {
  const current = state.value;
  if (current === undefined) return <Waiting />;
  return (
    <>
      {!isLive.value && <Away />}
      <Verdict />
    </>
  );
}

/** Before the first state. */
function Waiting() {
  return (
    <div class="card">
      <div class="status">
        <Glyph kind="wait" />
        <h1>
          {serverError.value === "connecting" ? "Looking at the lock nodes" : "The page's server does not answer"}
        </h1>
        <p>The page tries again every second.</p>
      </div>
    </div>
  );
}

function Away() {
  const current = state.value;
  if (current === undefined) return null;
  const { live, nodes } = current;
  const isServer = serverError.value !== undefined;
  const at = isServer ? current.now : live.at;
  const who = isServer ? "The page's server" : "Redis";
  const since = at === undefined ? "" : ` since ${clock(at)} (${wholeDuration(now.value - at)})`;
  const facts = isServer ? "" : `${live.error ?? `${nodes.value?.answering ?? 0} nodes answer`}. `;
  return (
    <div class="away">
      <div class="banner" role="alert">
        <Glyph kind="away" />
        <h1>
          {who} has not answered{since}
        </h1>
        <p>
          {facts}
          {at === undefined ? "Nothing has been read yet. " : <b>Everything below is as of {clock(at)}</b>}
          {at !== undefined && " and may have changed. "}
          Actions are off until {isServer ? "the server" : "Redis"} answers; the page tries again every second.
        </p>
        {!isServer && (
          <div class="next">
            <Command text="npx @x/console check" />
          </div>
        )}
      </div>
      {!isServer && (
        <div class="card says">
          <p>
            <b>What this means.</b> No lock can be taken or renewed: a process that holds one is notified before its
            lease ends. Leaders step down when their lease ends. Jobs that run now go on, and their workers keep trying
            to report the result.
          </p>
        </div>
      )}
    </div>
  );
}

/** The latest solved problems have rows of their own. A bad minute would fill the page with the others. */
const SHOWN_SOLVED = 3;

function Verdict() {
  // The banner says this.
  const problems = (state.value?.problems ?? []).filter(({ code }) => isLive.value || code !== "NO_QUORUM");
  if (!isLive.value && problems.length === 0) return null;
  const open = problems.filter(({ solvedAt }) => solvedAt === undefined);
  const solved = problems.filter(({ solvedAt }) => solvedAt !== undefined);
  const count = (severity: string): number => open.filter((each) => each.severity === severity).length;
  const [critical, warnings, notices] = [count("critical"), count("warning"), count("notice")];
  const needing = critical + warnings;
  const title = !isLive.value
    ? "Before Redis stopped answering"
    : needing > 0
      ? `${counted(needing, "thing needs", "things need")} attention`
      : "All well";
  const parts = [
    critical > 0 ? `${critical} critical` : "",
    warnings > 0 ? counted(warnings, "warning") : "",
    notices > 0 ? counted(notices, "notice") : "",
  ].filter((text) => text !== "");
  const said = parts.join(", ");
  const oldest = Math.min(...open.filter(({ severity }) => severity !== "notice").map(({ since }) => since));
  const kind = critical > 0 ? "bad" : warnings > 0 ? "warn" : "good";
  const TitleTag = isLive.value ? "h1" : "h2";
  return (
    <div class="card" id="attention">
      {/* Announced when it changes, and not when an age does. */}
      <p class="vh" role="status">
        {isLive.value ? title : "Not live"}
      </p>
      <div class="status">
        <Glyph kind={isLive.value ? kind : "wait"} />
        <TitleTag class="verdict">{title}</TitleTag>
        <p>
          {said === "" ? "Nothing needs attention." : `${said}.`}
          {solved.length > 0 &&
            ` ${solved.length} more ${solved.length === 1 ? "was" : "were"} solved in the last 5 min.`}
        </p>
        <span class="aside">
          {Number.isFinite(oldest) ? (
            <>oldest since {dayClock(oldest, now.value)}</>
          ) : (
            <button type="button" class="btn quiet" onClick={() => (dialog.value = { kind: "checks" })}>
              What is checked
            </button>
          )}
        </span>
      </div>
      {problems.length > 0 && (
        <ol class="problems">
          {[...open, ...solved.slice(0, SHOWN_SOLVED)].map((problem) => (
            <Problem key={problem.id} problem={problem} />
          ))}
        </ol>
      )}
      {solved.length > SHOWN_SOLVED && (
        <details class="fold">
          <summary>{solved.length - SHOWN_SOLVED} more solved in the last 5 min</summary>
          <ol class="problems">
            {solved.slice(SHOWN_SOLVED).map((problem) => (
              <Problem key={problem.id} problem={problem} />
            ))}
          </ol>
        </details>
      )}
      {open.length === 0 && <Facts />}
    </div>
  );
}

export const WORDS = { critical: "Critical", warning: "Warning", notice: "Notice" };

export function addressOf({ section, queue, key }: PagePlace): string {
  return queue === undefined ? `#${section}` : hashOf(queue, key);
}

function Problem({ problem }: { readonly problem: ProblemView }) {
  const { severity, title, step, command, action, place, since, solvedAt } = problem;
  const isSolved = solvedAt !== undefined;
  return (
    <li class={isSolved ? "problem solved" : "problem"} data-problem={problem.id}>
      <span class={`sev ${isSolved ? "solved" : severity}`}>
        <SeverityMark severity={isSolved ? "solved" : severity} />
        {isSolved ? "Solved" : WORDS[severity]}
      </span>
      <div>
        <h2>
          <a href={addressOf(place)}>{printable(title)}</a>
        </h2>
        <p>
          {isSolved ? (
            <>
              From {dayClock(since, now.value)} to {clock(solvedAt)}, {duration(solvedAt - since)}.
            </>
          ) : (
            <>
              Since {dayClock(since, now.value)}, for {wholeDuration(now.value - since)}. {printable(step)}
            </>
          )}
        </p>
      </div>
      {!isSolved && (
        <div class="next">
          {action !== undefined && state.value?.actions === true && <Action action={action} kind="main" />}
          {command !== undefined && <Command text={command} />}
        </div>
      )}
    </li>
  );
}

/** The figures of a quiet moment. */
function Facts() {
  const current = state.value;
  if (current === undefined) return null;
  const { nodes, processes, queues, elections } = current;
  const slots = queues.flatMap(({ slots, busySlots }) =>
    slots === undefined || busySlots === undefined ? [] : [{ slots, busySlots }],
  );
  const finished = queues.flatMap(({ series }) => perMinute(series?.completed) ?? []);
  const oldest = queues
    .flatMap(({ name, oldest }) => (oldest === undefined ? [] : [{ name, since: oldest.since }]))
    .sort((a, b) => a.since - b.since)[0];
  const sum = (values: readonly number[]): number => values.reduce((total, each) => total + each, 0);
  const running = elections.filter(({ state }) => state !== "ended");
  const { answering = 0, nodes: all = [] } = nodes.value ?? {};
  return (
    <dl class="facts">
      <Fact name="Lock nodes" value={`${answering} of ${all.length}`} small="answer" />
      {queues.length > 0 && (
        <>
          <Fact name="Processes" value={count(processes?.filter(({ isGone }) => !isGone).length ?? 0)} small="report" />
          <Fact
            name="Slots busy"
            value={
              slots.length === 0
                ? "not reported"
                : `${count(sum(slots.map(({ busySlots }) => busySlots)))} of ${count(sum(slots.map(({ slots }) => slots)))}`
            }
          />
          <Fact
            name="Finished"
            value={finished.length === 0 ? "not reported" : count(sum(finished))}
            small={finished.length === 0 ? "" : "a minute"}
          />
          <Fact
            name="Oldest parked"
            value={oldest === undefined ? "none" : duration(now.value - oldest.since)}
            small={oldest?.name}
          />
        </>
      )}
      <Fact
        name="Elections"
        value={`${running.filter(({ state }) => state === "led").length} of ${running.length}`}
        small="have a leader"
      />
    </dl>
  );
}

const Fact = ({
  name,
  value,
  small,
}: {
  readonly name: string;
  readonly value: ComponentChildren;
  readonly small?: string | undefined;
}) => (
  <div>
    <dt>{name}</dt>
    <dd>
      {value} {small !== undefined && <small>{small}</small>}
    </dd>
  </div>
);
