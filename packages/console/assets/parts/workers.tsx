/** One row per process, one column per queue: the commonest incident is a queue without a worker. */
import type { ProcessView, QueueView, WorkerView } from "../../src/page/state.ts";
import { hashOf, isLive, now, state } from "../model.ts";
import { clock, count, counted, listed, printable, wholeDuration } from "../words.ts";
import { Cell, Empty, Name, None, Pips, Row, Section, Table, Who } from "./common.tsx";

/** The most queues with a column of their own. */
const MOST_COLUMNS = 6;

/** Splits `host:pid`. */
export function hostAndPid(at: string): readonly [host: string, pid: string] {
  const colon = at.lastIndexOf(":");
  return colon < 0 ? [at, ""] : [at.slice(0, colon), at.slice(colon + 1)];
}

/** Queues without a worker first: they are what this section is for. */
function columnsOf(queues: readonly QueueView[]): readonly QueueView[] {
  return queues
    .toSorted(
      (one, other) => Number(hasWorker(one)) - Number(hasWorker(other)) || (other.slots ?? 0) - (one.slots ?? 0),
    )
    .slice(0, MOST_COLUMNS);
}

function hasWorker({ workers }: QueueView): boolean {
  return workers === undefined || workers > 0;
}

export function Workers() {
  const { processes, queues } = state.value ?? { processes: undefined, queues: [] };
  if (queues.length === 0) return null;
  const present = (processes ?? []).filter(({ isGone }) => !isGone);
  const gone = (processes ?? []).filter(({ isGone }) => isGone);
  const without = queues.filter((queue) => !hasWorker(queue) && needsWorker(queue)).map(({ name }) => name);
  const columns = columnsOf(queues);
  const left = queues.length - columns.length;
  const at = Math.max(...queues.map(({ at = 0 }) => at));
  return (
    <Section
      id="workers"
      title="Workers"
      at={at > 0 ? at : undefined}
      note={
        <>
          {counted(present.length, "process", "processes")}
          {without.length === 0 ? (
            ", slots in use by queue"
          ) : (
            <>
              .{" "}
              <span class="bad">
                {printable(listed(without))} {without.length === 1 ? "has" : "have"} no worker.
              </span>
            </>
          )}
        </>
      }
      end={<span>A process reports every 10 s and counts as gone after 30 s</span>}
    >
      <Table
        label="Workers"
        kind="two"
        columns={[
          { text: "Process" },
          ...columns.map(({ name }) => ({ text: <a href={hashOf(name)}>{printable(name)}</a> })),
          { text: "Last report" },
          { text: "Leads" },
          { text: "Version" },
        ]}
      >
        {present.map((process) => (
          <Process key={process.at} process={process} columns={columns} />
        ))}
        {present.length === 0 && <Empty columns={columns.length + 4}>{noneText(processes, queues)}</Empty>}
      </Table>
      {(gone.length > 0 || left > 0) && (
        <div class="foot">
          <span>
            {gone.length > 0 && goneText(gone)}
            {left > 0 && ` ${counted(left, "more queue")} ${left === 1 ? "has" : "have"} no column here.`}
          </span>
        </div>
      )}
    </Section>
  );
}

export function needsWorker({ runnable, running, stalled, parked }: QueueView): boolean {
  return runnable + running + stalled + parked > 0;
}

function noneText(processes: readonly ProcessView[] | undefined, queues: readonly QueueView[]): string {
  if (processes === undefined) return "Not read yet.";
  const jobs = queues.some(needsWorker);
  return jobs ? "No worker reports, and jobs wait. Start one." : "No worker reports, and no queue has a job.";
}

function goneText(gone: readonly ProcessView[]): string {
  const names = gone.map(({ at, reportedAt }) => {
    const [host, pid] = hostAndPid(at);
    return `${host} pid ${pid} since ${clock(reportedAt)}`;
  });
  return `Gone: ${printable(listed(names))}.`;
}

function Process({ process, columns }: { readonly process: ProcessView; readonly columns: readonly QueueView[] }) {
  const { at, workers, leads, reportedAt } = process;
  const [host, pid] = hostAndPid(at);
  const versions = [...new Set(workers.flatMap(({ version }) => version ?? []))];
  return (
    <Row>
      <Name>
        <Who name={at} text={host} />
        <span class="sub mono">pid {printable(pid)}</span>
      </Name>
      {columns.map((queue) => (
        <Cell key={queue.name} label={printable(queue.name)}>
          <Slots workers={workers.filter((each) => each.queue === queue.name)} queue={queue} />
        </Cell>
      ))}
      <Cell label="Last report" class="nw">
        {isLive.value ? `${wholeDuration(Math.max(0, now.value - reportedAt))} ago` : clock(reportedAt)}
      </Cell>
      <Cell label="Leads" class="nw">
        {leads.length === 0 ? <None /> : printable(listed(leads))}
      </Cell>
      <Cell label="Version" class="nw">
        {versions.length === 0 ? <span class="dim">not reported</span> : versions.join(", ")}
      </Cell>
    </Row>
  );
}

function Slots({ workers, queue }: { readonly workers: readonly WorkerView[]; readonly queue: QueueView }) {
  const present = workers.filter(({ isGone }) => !isGone);
  if (present.length === 0) {
    if (workers.length > 0) return <span class="tag bad">gone</span>;
    return hasWorker(queue) || !needsWorker(queue) ? <None /> : <span class="tag bad">no worker</span>;
  }
  const slots = sumOf(present.map((each) => each.slots));
  const busy = sumOf(present.map((each) => each.busy));
  if (slots === undefined || busy === undefined) return <span class="dim">not reported</span>;
  return (
    <span class="slots">
      <Pips on={busy} of={slots} />
      <span>
        {count(busy)} of {count(slots)}
      </span>
    </span>
  );
}

/** Sums figures. Undefined if a figure was not reported. */
function sumOf(values: readonly (number | undefined)[]): number | undefined {
  return values.reduce((sum, each) => (sum === undefined || each === undefined ? undefined : sum + each), 0);
}
