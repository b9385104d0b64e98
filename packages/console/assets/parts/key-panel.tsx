/** An opened key: why its jobs wait, how the page knows that, and the jobs in line. Everything is from one reading. */
import type { KeyReading, KeyReadingJob } from "@x/workers";
import { shellWord } from "../../src/page/rules/words.ts";
import type { ActionView } from "../../src/page/state.ts";
import { hashOf, isLive, now, state } from "../model.ts";
import { clock, count, counted, duration, interval, policyText, printable, wholeDuration } from "../words.ts";
import { Action, Age, Ask, Command, Hidden, More } from "./common.tsx";
import { Tick } from "./icons.tsx";
import { KeyState } from "./key-state.tsx";

type Job = KeyReadingJob;

export function KeyPanel({ queue, name }: { readonly queue: string; readonly name: string }) {
  const section = state.value?.key;
  const reading = section?.value?.key === name ? section.value : undefined;
  // The row of the table is known earlier than the reading, and stays if the reading fails.
  const row = state.value?.keys?.keys.find(({ key }) => key === name);
  const known = reading ?? row;
  const actions = known === undefined || state.value?.actions !== true ? [] : actionsOf(queue, known);
  return (
    <aside class="card inspect" aria-labelledby="key-h">
      <div class="hd">
        <h1 id="key-h" class="mono" tabIndex={-1}>
          {printable(name)}
        </h1>
        {reading !== undefined ? <State reading={reading} /> : row !== undefined && <KeyState state={row.state} />}
        <a class="more" href={hashOf(queue)} aria-label={`Close key ${printable(name)}`}>
          ✕
        </a>
      </div>
      {reading === undefined ? (
        <p class="blk dim">{section?.error ?? (row === undefined ? "Not read yet." : printable(row.why))}</p>
      ) : (
        <Reading queue={queue} reading={reading} error={section?.error} />
      )}
      {actions.length > 0 && (
        <div class="blk acts">
          {actions.map((action) => (
            <Action key={action.do} action={action} />
          ))}
          <Ask text="Set limits" open={{ kind: "limits", queue, key: name, policy: known?.policy }} />
        </div>
      )}
      <div class="blk">
        <Command text={`npx @x/console keys jobs ${shellWord(queue)} ${shellWord(name)}`} />
      </div>
    </aside>
  );
}

/** The state in one word. */
export function wordOf({ paused, holders, parked, limitedUntilMs = 0, atMs, isStalled, jobs }: KeyReading): {
  readonly text: string;
  readonly kind: string;
} {
  if (paused !== undefined)
    return paused.jobId === undefined ? { text: "paused", kind: "warn" } : { text: "halted", kind: "bad" };
  if (isStalled) return { text: "stalled", kind: "bad" };
  if (jobs.some(({ verdict, lockMs }) => verdict === "runs" || (verdict === "cancelled" && lockMs !== undefined)))
    return { text: "runs", kind: "run" };
  if (limitedUntilMs > atMs) return { text: "limited", kind: "lim" };
  if (holders.length > 0) return { text: "waits for a slot", kind: "" };
  return { text: parked > 0 ? "waits for its turn" : "free", kind: "" };
}

function State({ reading }: { readonly reading: KeyReading }) {
  const { text, kind } = wordOf(reading);
  return <span class={`tag ${kind}`}>{text}</span>;
}

interface ReadingProps {
  readonly queue: string;
  readonly reading: KeyReading;
  readonly error: string | undefined;
}

function Reading({ queue, reading, error }: ReadingProps) {
  const { key, message, jobs, holders, parked, atMs, waitingSinceMs } = reading;
  const holding = jobs.filter(({ id }) => holders.includes(id));
  const line = jobs.filter(({ id, parkedSinceMs }) => parkedSinceMs !== undefined && !holders.includes(id));
  return (
    <>
      <div class="blk">
        <p class="why">{printable(message)}</p>
        <Line reading={reading} holding={holding} line={line} />
      </div>
      <div class="blk">
        <p class="lbl">
          <span>How the page knows</span>
          <span>{isLive.value && error === undefined ? `one reading, ${clock(atMs)}` : <Age at={atMs} />}</span>
        </p>
        <ul class="ev">
          {holding.map((job) => (
            <Facts key={job.id} job={job} />
          ))}
          {reading.paused !== undefined && (
            <Fact
              isTrue
              text={
                reading.paused.jobId === undefined
                  ? `The key is marked as paused: ${reading.paused.reason}`
                  : `The key is marked as halted by job ${reading.paused.jobId}`
              }
              end={`since ${clock(reading.paused.sinceMs)}`}
            />
          )}
          {holding.length === 0 && <Fact isTrue text="No job has the key" />}
          {waitingSinceMs !== undefined && parked > 0 && (
            <Fact
              isTrue
              text="The first job in line was added"
              end={`${duration(Math.max(0, now.value - waitingSinceMs))} ago`}
            />
          )}
        </ul>
      </div>
      {parked > 0 && <Jobs queue={queue} name={key} line={line} parked={parked} />}
      <div class="blk">
        <Limits reading={reading} />
      </div>
    </>
  );
}

/** The actions of a key, with their effects in words. */
export function actionsOf(
  queue: string,
  { key, holder, paused, policy, parked }: Pick<KeyReading, "key" | "holder" | "paused" | "policy" | "parked">,
): readonly ActionView[] {
  const parameters = { queue, key };
  const name = printable(key);
  const pause =
    paused === undefined
      ? {
          do: "pause-key",
          label: "Pause key",
          effect: `No further job of ${name} starts until somebody resumes the key. A job that runs continues.`,
          parameters,
        }
      : {
          do: "resume-key",
          label: paused.jobId === undefined ? "Resume key" : `Resume without job ${printable(paused.jobId)}`,
          effect: `${parked === 0 ? "The next job" : counted(parked, "job")} of ${name} may start again, in order.${paused.jobId === undefined ? "" : ` Job ${paused.jobId} stays failed, unless somebody retries it first.`}`,
          parameters,
        };
  const policies =
    policy === undefined
      ? []
      : [
          {
            do: "remove-policy",
            label: "Remove policy",
            effect: `For ${name}, the limits of the workers' options apply again.`,
            parameters,
          },
        ];
  const cancel =
    holder === undefined
      ? []
      : [
          {
            do: "cancel-job",
            label: `Cancel job ${printable(holder)}`,
            effect: `The signal of job ${printable(holder)} aborts. The job fails without a retry when its processor ends.`,
            parameters: { ...parameters, jobId: holder },
          },
        ];
  const failed = paused?.jobId;
  const retry =
    failed === undefined
      ? []
      : [
          {
            do: "retry-job",
            label: "Retry, then resume",
            effect: `Job ${printable(failed)} runs again first. ${counted(parked, "job")} of ${name} ${parked === 1 ? "follows" : "follow in order"}.`,
            parameters: { ...parameters, jobId: failed },
          },
        ];
  const remove =
    parked < 2
      ? []
      : [
          {
            do: "remove-jobs",
            label: `Remove ${count(parked)} jobs`,
            effect: `All jobs in line for ${name} are deleted for good, with their children. A job that runs continues.`,
            parameters,
          },
        ];
  return [...retry, pause, ...policies, ...cancel, ...remove];
}

/** The holders of the key, and the first jobs in line. */
function Line({
  reading,
  holding,
  line,
}: {
  readonly reading: KeyReading;
  readonly holding: readonly Job[];
  readonly line: readonly Job[];
}) {
  const { paused, parked } = reading;
  const failed = paused?.jobId;
  if (holding.length === 0 && failed === undefined && line.length === 0) return null;
  const rest = parked - Math.min(line.length, 2);
  return (
    <div class="line" aria-hidden="true">
      {failed !== undefined && <span class="slot failed">✕ {failed}</span>}
      {holding.slice(0, 3).map(({ id, verdict, worker }) => (
        <span key={id} class={verdict === "stalled" ? "slot failed" : "slot"}>
          {id}
          {worker !== undefined && ` on ${printable(worker)}`}
        </span>
      ))}
      {line.length > 0 && <span class="arr">←</span>}
      {line.slice(0, 2).map(({ id }) => (
        <span key={id} class="j">
          {id}
        </span>
      ))}
      {rest > 0 && line.length > 0 && <span class="rest">and {count(rest)} more</span>}
    </div>
  );
}

/** The facts behind what is said of a job that has the key. */
function Facts({ job: { id, verdict, lockMs, worker, workerReportedMs, startedMs, message } }: { readonly job: Job }) {
  if (verdict !== "runs" && verdict !== "stalled") return <Fact isTrue text={`Job ${id} ${message}`} />;
  return (
    <>
      {startedMs !== undefined && (
        <Fact isTrue text={`Job ${id} has started`} end={`${duration(Math.max(0, now.value - startedMs))} ago`} />
      )}
      <Fact
        isTrue={lockMs !== undefined}
        text={lockMs === undefined ? `BullMQ's lock of job ${id} has expired` : `BullMQ's lock of job ${id} exists`}
        end={lockMs === undefined ? undefined : `${duration(lockMs)} left`}
      />
      <Fact
        isTrue={worker !== undefined && workerReportedMs !== undefined && verdict === "runs"}
        text={worker === undefined ? "Its worker does not report" : `Its worker ${worker} reports`}
        end={
          workerReportedMs === undefined ? undefined : `${wholeDuration(Math.max(0, now.value - workerReportedMs))} ago`
        }
      />
    </>
  );
}

const Fact = ({
  isTrue,
  text,
  end,
}: {
  readonly isTrue: boolean;
  readonly text: string;
  readonly end?: string | undefined;
}) => (
  <li>
    <Tick isTrue={isTrue} />
    <span>
      {!isTrue && <Hidden>Not so: </Hidden>}
      {printable(text)}
    </span>
    {end !== undefined && <span class="e">{end}</span>}
  </li>
);

function Jobs({
  queue,
  name,
  line,
  parked,
}: {
  readonly queue: string;
  readonly name: string;
  readonly line: readonly Job[];
  readonly parked: number;
}) {
  return (
    <>
      <div class="blk lead">
        <p class="lbl">
          <span>Jobs in line, first to start on top</span>
          <span>{line.length < parked ? `${line.length} of ${count(parked)}` : count(parked)}</span>
        </p>
      </div>
      <div class="jobs-box">
        <table class="jobs" aria-label={`Jobs in line for ${printable(name)}`}>
          <thead>
            <tr>
              <th scope="col">#</th>
              <th scope="col">Job</th>
              <th scope="col">Name</th>
              <th scope="col" class="r">
                Waits for
              </th>
              <th scope="col">
                <Hidden>Details</Hidden>
              </th>
            </tr>
          </thead>
          <tbody>
            {line.map(({ id, name: job, parkedSinceMs }, at) => (
              <tr key={id}>
                <td class="dim">{at + 1}</td>
                <th scope="row" class="mono">
                  {printable(id)}
                </th>
                <td>{printable(job)}</td>
                <td class="num">
                  {parkedSinceMs === undefined ? "–" : duration(Math.max(0, now.value - parkedSinceMs))}
                </td>
                <td class="r">
                  <More label={`job ${printable(id)}`} open={{ kind: "job", queue, key: name, id }} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Limits({ reading: { slots, rate, policy } }: { readonly reading: KeyReading }) {
  return (
    <dl class="kv">
      <dt>At a time</dt>
      <dd>{counted(slots, "job")}</dd>
      <dt>Rate</dt>
      <dd>
        {rate === undefined
          ? "none"
          : `${count(rate.max)} in ${interval(rate.duration)}, ${count(rate.counted)} started`}
      </dd>
      <dt>Policy</dt>
      <dd>{policy === undefined ? "none" : policyText(policy)}</dd>
    </dl>
  );
}
