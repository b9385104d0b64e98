/** The queues: those with problems first, then the busiest. */
import { useRef } from "preact/hooks";
import type { QueueView } from "../../src/page/state.ts";
import { perMinute, sortedQueues, total } from "../figures.ts";
import { hashOf, isLive, now, state } from "../model.ts";
import { clock, count, counted, duration, printable } from "../words.ts";
import { Cell, Count, Name, None, Row, Section, Table, useSettled } from "./common.tsx";
import { Spark } from "./spark.tsx";
import { needsWorker } from "./workers.tsx";

/** The names of the queues with an open problem. */
export function troubled(): ReadonlySet<string> {
  const open = (state.value?.problems ?? []).filter(
    ({ solvedAt, severity }) => solvedAt === undefined && severity !== "notice",
  );
  return new Set(open.flatMap(({ place }) => place.queue ?? []));
}

export function Queues() {
  const queues = state.value?.queues ?? [];
  const box = useRef<HTMLDivElement>(null);
  const withProblem = troubled();
  const shown = useSettled(sortedQueues(queues, withProblem), ({ name }) => name, box);
  const at = Math.max(...queues.map(({ at = 0 }) => at));
  if (queues.length === 0)
    return (
      <Section id="queues" title="Queues" canFold={false}>
        <p class="empty">
          No queue was found. Name one with <code>--queue</code>, or in the option <code>queues</code>.
        </p>
      </Section>
    );
  return (
    <div ref={box}>
      <Section
        id="queues"
        title="Queues"
        canFold={false}
        at={at > 0 ? at : undefined}
        note={withProblem.size > 0 ? "with problems first, then the busiest" : "busiest first"}
        end={<span>Can run: waits for a slot. Parked: waits for its key. Each chart has its own scale.</span>}
      >
        <Table
          label="Queues"
          kind="two"
          columns={[
            { text: "Queue" },
            { text: <Key colour="done">Finished, last 15 min</Key> },
            {
              text: (
                <>
                  <Key colour="can">Can run</Key> <Key colour="park">Parked, last 15 min</Key>
                </>
              ),
            },
            { text: "Running", isRight: true },
            { text: "Can run", isRight: true },
            { text: "Parked", isRight: true },
            { text: "Limited", isRight: true },
            { text: "Failed", isRight: true },
            { text: "Oldest parked", isRight: true },
          ]}
        >
          {shown.map((queue) => (
            <Queue key={queue.name} queue={queue} isBad={withProblem.has(queue.name)} />
          ))}
        </Table>
      </Section>
    </div>
  );
}

export const Key = ({ colour, children }: { readonly colour: string; readonly children: string }) => (
  <span class="key">
    <i class={colour} />
    {children}
  </span>
);

/** Describes the most urgent fact about a queue in a few words. */
export function stateOf(queue: QueueView): { readonly text: string; readonly tone: string } {
  const { error, isPaused, workers, haltedKeys, pausedKeys, reportedAt, goneWorkers = 0 } = queue;
  const known = workers === undefined ? "workers not known" : counted(workers, "worker");
  if (!isLive.value) return { text: `${known} then`, tone: "" };
  if (error !== undefined) return { text: `not read: ${printable(error)}`, tone: "bad" };
  if (workers === 0 && needsWorker(queue))
    return { text: reportedAt === undefined ? "no worker" : `no worker since ${clock(reportedAt)}`, tone: "bad" };
  if (haltedKeys > 0) return { text: `${counted(haltedKeys, "key")} halted`, tone: "warn" };
  if (isPaused) return { text: "the queue is paused", tone: "warn" };
  if (goneWorkers > 0) return { text: `${counted(goneWorkers, "worker")} gone`, tone: "warn" };
  if (pausedKeys > 0) return { text: `${counted(pausedKeys, "key")} paused`, tone: "" };
  return { text: known, tone: "" };
}

function Queue({ queue, isBad }: { readonly queue: QueueView; readonly isBad: boolean }) {
  const { name, series, running, stalled, slots, runnable, parked, limited, oldest } = queue;
  const { text, tone } = stateOf(queue);
  const minute = perMinute(series?.completed);
  const failed = total(series?.failed);
  const points = (known: readonly (number | null)[] | undefined): readonly (number | null)[] => known ?? [];
  return (
    <Row class={isBad && tone === "bad" ? "is-bad" : undefined} data-queue={name}>
      <Name>
        <a href={hashOf(name)}>{printable(name)}</a>
        <span class={`sub ${tone}`}>{text}</span>
      </Name>
      <Cell label="Finished, last 15 min" class="wide">
        <span class="cellspark">
          <Spark
            label={`${printable(name)}: finished jobs over 15 minutes, now ${minute === undefined ? "not reported" : `${count(minute)} a minute`}`}
            series={[{ name: "finished", colour: "done", points: points(series?.completed) }]}
          />
          <span class="per">
            {minute === undefined ? <span class="dim">not reported</span> : <b>{count(minute)}</b>}
            {minute !== undefined && <span class="sub">a minute</span>}
          </span>
        </span>
      </Cell>
      <Cell label="Can run and parked, last 15 min" class="wide">
        <Spark
          label={`${printable(name)}: jobs that can run and parked jobs over 15 minutes, now ${count(runnable)} and ${count(parked)}`}
          series={[
            { name: "can run", colour: "can", points: points(series?.runnable) },
            { name: "parked", colour: "park", points: points(series?.parked) },
          ]}
        />
      </Cell>
      <Cell label="Running" class="num">
        <Count value={running} />
        <span class="sub">
          {stalled > 0 ? `${count(stalled)} stalled` : slots === undefined ? "" : `of ${count(slots)}`}
        </span>
      </Cell>
      <Cell label="Can run" class={`num ${tone === "bad" && runnable > 0 ? "bad" : ""}`}>
        <Count value={runnable} />
      </Cell>
      <Cell label="Parked" class="num">
        <Count value={parked} />
      </Cell>
      <Cell label="Limited" class="num">
        <Count value={limited} />
      </Cell>
      <Cell label="Failed" class="num">
        {failed === undefined ? <None /> : <Count value={failed} />}
      </Cell>
      <Cell label="Oldest parked" class="num">
        {oldest === undefined ? <None /> : duration(now.value - oldest.since)}
      </Cell>
    </Row>
  );
}
