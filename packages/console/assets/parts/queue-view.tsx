/** An opened queue: its figures and charts, its keys, and the opened key next to them. */
import { useRef } from "preact/hooks";
import type { KeyRow, QueueView, StoppedKey } from "../../src/page/state.ts";
import { perMinute, total } from "../figures.ts";
import { hashOf, isLive, now, route, state, tables } from "../model.ts";
import { clock, count, counted, duration, policyText, printable, wholeDuration } from "../words.ts";
import { Chart } from "./chart.tsx";
import {
  Age,
  Cell,
  Count,
  Empty,
  Hidden,
  Name,
  None,
  PAGE_ROWS,
  Pages,
  Pips,
  Row,
  Table,
  useSettled,
  Who,
} from "./common.tsx";
import { choose, chosenText, KeyFilters, WhereJobsWait } from "./key-groups.tsx";
import { KeyPanel } from "./key-panel.tsx";
import { KeyState } from "./key-state.tsx";
import { stateOf } from "./queues.tsx";
import { hostAndPid } from "./workers.tsx";

export function QueuePage() {
  const { queue: name, key } = route.value;
  const queue = state.value?.queues.find((each) => each.name === name);
  return (
    <div class={key === "" ? "opened" : "opened has-key"}>
      <nav class="crumbs" aria-label="You are here">
        <a href="#main">Overview</a> <span aria-hidden="true">/</span> <a href="#queues">Queues</a>{" "}
        <span aria-hidden="true">/</span>{" "}
        <a href={hashOf(name)} aria-current={key === "" ? "page" : undefined}>
          {printable(name)}
        </a>
        {key !== "" && (
          <>
            <span aria-hidden="true">/</span>{" "}
            <span class="mono" aria-current="page">
              {printable(key)}
            </span>
          </>
        )}
      </nav>
      {queue === undefined ? <Unknown name={name} /> : <Opened queue={queue} openKey={key} />}
    </div>
  );
}

function Unknown({ name }: { readonly name: string }) {
  const isKnown = state.value !== undefined;
  return (
    <div class="card">
      <div class="status q">
        <h1>{printable(name)}</h1>
        <p>
          {isKnown ? (
            <>
              The page shows no queue of this name. Name it with <code>--queue</code>, or in the option{" "}
              <code>queues</code>.
            </>
          ) : (
            "Not read yet."
          )}
        </p>
      </div>
    </div>
  );
}

function Opened({ queue, openKey }: { readonly queue: QueueView; readonly openKey: string }) {
  const keys = state.value?.keys;
  return (
    <>
      <Figures queue={queue} />
      {openKey === "" && keys?.queue === queue.name && keys.groups !== undefined && keys.total > PAGE_ROWS && (
        <WhereJobsWait groups={keys.groups} />
      )}
      <div class={openKey === "" ? "panes one" : "panes"}>
        <div class="left">
          <Keys queue={queue} openKey={openKey} />
          <QueueWorkers queue={queue} />
        </div>
        {openKey !== "" && <KeyPanel queue={queue.name} name={openKey} />}
      </div>
    </>
  );
}

function Figures({ queue }: { readonly queue: QueueView }) {
  const { name, series, at, running, stalled, slots, runnable, parked, limited, stopped, oldest } = queue;
  const minute = perMinute(series?.completed);
  const failed = total(series?.failed);
  const { text, tone } = stateOf(queue);
  return (
    <div class="card queuecard">
      <div class="status q">
        <Title>{printable(name)}</Title>
        <p>
          <span class={tone === "bad" ? tone : undefined}>
            {tone === "bad" || !isLive.value ? text : workersText(queue)}
          </span>
          {queue.slots !== undefined &&
            queue.slots > 0 &&
            queue.busySlots === queue.slots &&
            `. All ${count(queue.slots)} slots are busy`}
          . <Stopped queue={name} word="halted" keys={queue.halted} tone="bad" />
          <Stopped queue={name} word="paused" keys={queue.paused} tone="warn" />
        </p>
        <span class="aside">
          {at === undefined ? (
            "not read yet"
          ) : isLive.value ? (
            `read ${duration(Math.max(0, now.value - at))} ago`
          ) : (
            <Age at={at} />
          )}
        </span>
      </div>
      <dl class="tiles">
        <Tile
          name="Running"
          colour="done"
          value={running}
          small={
            stalled > 0
              ? `and ${count(stalled)} stalled`
              : slots === undefined
                ? "slots not reported"
                : `of ${counted(slots, "slot")}`
          }
        />
        <Tile name="Can run" colour="can" value={runnable} small="wait for a slot" />
        <Tile
          name="Parked"
          colour="park"
          value={parked}
          small={stopped > 0 ? `${count(stopped)} of stopped keys` : "wait for their key"}
        />
        <Tile name="Limited" colour="lim" value={limited} small="of the parked" />
        <Tile name="Failed" colour="fail" value={failed} small="in 15 min" />
        <div>
          <dt>Oldest parked</dt>
          <dd>
            {oldest === undefined ? "–" : duration(now.value - oldest.since)}
            <small>
              {oldest === undefined ? (
                "nothing waits for a key"
              ) : (
                <a href={hashOf(name, oldest.key)}>{printable(oldest.key)}</a>
              )}
            </small>
          </dd>
        </div>
      </dl>
      {series !== undefined && (
        <div class="charts">
          <Chart
            title="Finished jobs in 15 s"
            label={`Finished jobs over 15 minutes, now ${minute === undefined ? "not reported" : `${count(minute)} a minute`}`}
            at={series.at}
            series={[
              { name: "finished", colour: "done", points: series.completed },
              { name: "failed", colour: "fail", points: series.failed },
            ]}
          />
          <Chart
            title="Waiting jobs"
            label={`Waiting jobs over 15 minutes, now ${count(runnable)} can run and ${count(parked)} are parked`}
            at={series.at}
            series={[
              { name: "can run", colour: "can", points: series.runnable },
              { name: "parked", colour: "park", points: series.parked },
            ]}
          />
        </div>
      )}
    </div>
  );
}

/** The title of the queue, unless a key is open, which is then what the page is about. */
function Title({ children }: { readonly children: string }) {
  return route.value.key === "" ? <h1 class="title">{children}</h1> : <h2 class="title">{children}</h2>;
}

function workersText({ workers }: QueueView): string {
  return workers === undefined ? "Workers are not known" : counted(workers, "worker");
}

const Tile = ({
  name,
  colour,
  value,
  small,
}: {
  readonly name: string;
  readonly colour: string;
  readonly value: number | undefined;
  readonly small: string;
}) => (
  <div>
    <dt>
      <i class={colour} />
      {name}
    </dt>
    <dd>
      {value === undefined ? "–" : count(value)}
      <small>{value === undefined ? "not reported" : small}</small>
    </dd>
  </div>
);

/** Links to the keys that do not go on by themselves. */
function Stopped({
  queue,
  word,
  keys,
  tone,
}: {
  readonly queue: string;
  readonly word: string;
  readonly keys: readonly StoppedKey[];
  readonly tone: string;
}) {
  if (keys.length === 0) return null;
  return (
    <>
      <span class={tone}>
        {keys.length >= 10
          ? "10 or more keys are"
          : `${counted(keys.length, "key")} ${keys.length === 1 ? "is" : "are"}`}{" "}
        {word}:
      </span>{" "}
      {keys.slice(0, 3).map(({ key }) => (
        <a key={key} class="mono gap-after" href={hashOf(queue, key)}>
          {printable(key)}
        </a>
      ))}
      {keys.length > 3 && `and ${keys.length - 3} more. `}
    </>
  );
}

const KEY_COLUMNS = [
  { text: "Key" },
  { text: "State" },
  { text: "Has the key" },
  { text: "Parked ↓", isRight: true, sort: "descending" as const },
  { text: "Oldest", isRight: true },
  { text: "Limit of its own" },
];

function Keys({ queue, openKey }: { readonly queue: QueueView; readonly openKey: string }) {
  const view = state.value?.keys;
  const keys = view?.queue === queue.name ? view : undefined;
  const box = useRef<HTMLElement>(null);
  const rows = useSettled(keys?.keys ?? [], ({ key }) => key, box);
  const { keys: page, findKey, keyGroup } = tables.value;
  const isFound = findKey !== "" || keyGroup !== "";
  const chosen = chosenText();
  return (
    <section id="keys" aria-labelledby="keys-h" ref={box} class="keys">
      <div class="head">
        <h2 id="keys-h">Keys</h2>
        <span class="note">
          {keys === undefined
            ? "not read yet"
            : findKey !== ""
              ? `${count(keys.found)} of ${counted(keys.total, "key")} contain “${findKey}”`
              : isFound
                ? `${count(keys.found)} of ${counted(keys.total, "key")}`
                : `${count(keys.total)}, most parked first`}
          {chosen !== "" && (
            <>
              . {chosen}.{" "}
              <button type="button" class="btn quiet" onClick={() => choose("")}>
                All keys
              </button>
            </>
          )}
        </span>
        {keys?.groups !== undefined && (
          <span class="end">
            <KeyFilters groups={keys.groups} total={keys.total} />
          </span>
        )}
      </div>
      <div class="card">
        <Table label={`Keys of ${printable(queue.name)}`} kind="lines" columns={KEY_COLUMNS}>
          {rows.map((row) => (
            <Key key={row.key} queue={queue.name} row={row} isOpen={row.key === openKey} />
          ))}
          {rows.length === 0 && (
            <Empty columns={KEY_COLUMNS.length}>
              {keys === undefined
                ? "Not read yet."
                : isFound
                  ? "No key with a job, a pause or a limit is like this."
                  : "No key has a job, a pause or a limit."}
            </Empty>
          )}
        </Table>
        <Pages
          page={page}
          rows={rows.length}
          of={keys?.found ?? 0}
          noun="keys"
          go={(page) => (tables.value = { ...tables.value, keys: page })}
          note="Keys are shown while they have a job, a pause or a limit."
        />
      </div>
    </section>
  );
}

function Key({ queue, row, isOpen }: { readonly queue: string; readonly row: KeyRow; readonly isOpen: boolean }) {
  const { key, parked, holders, sinceMs, waitingSinceMs, policy, why } = row;
  return (
    <Row class={isOpen ? "is-on" : undefined} data-key={key}>
      <Name class="mono">
        <a href={hashOf(queue, key)} aria-current={isOpen ? "true" : undefined}>
          {printable(key)}
        </a>
      </Name>
      <Cell label="State" class="l2" title={why}>
        <KeyState state={row.state} />
      </Cell>
      <Cell label="Has the key" class="nw rest">
        {holders.length === 0 ? (
          <span class="dim">nobody</span>
        ) : (
          <>
            <span class="mono">{holders.slice(0, 3).join(", ")}</span>
            {holders.length > 3 && ` and ${count(holders.length - 3)} more`}
            {sinceMs !== undefined && row.state === "running" && (
              <span class="dim"> for {duration(Math.max(0, now.value - sinceMs))}</span>
            )}
          </>
        )}
      </Cell>
      <Cell label="Parked" class="num big" data-u="parked">
        <Count value={parked} />
      </Cell>
      <Cell label="oldest" class="num r2">
        {waitingSinceMs === undefined || parked === 0 ? <None /> : duration(Math.max(0, now.value - waitingSinceMs))}
      </Cell>
      <Cell label="Limit" class="nw dim rest">
        {policy === undefined ? "–" : policyText(policy)}
      </Cell>
    </Row>
  );
}

function QueueWorkers({ queue }: { readonly queue: QueueView }) {
  const processes = (state.value?.processes ?? []).filter(({ workers }) =>
    workers.some((each) => each.queue === queue.name),
  );
  const { differences, reportedAt } = queue;
  return (
    <section aria-labelledby="queue-workers-h">
      <div class="head">
        <h2 id="queue-workers-h">Workers of {printable(queue.name)}</h2>
        <span class="note">{queue.workers === undefined ? "not known" : count(queue.workers)}</span>
      </div>
      <div class="card">
        <Table
          label={`Workers of ${printable(queue.name)}`}
          columns={[
            { text: "Process" },
            { text: "Slots" },
            { text: "Completed", isRight: true },
            { text: "Failed", isRight: true },
            { text: "Last report", isRight: true },
          ]}
        >
          {processes.flatMap((process) =>
            process.workers
              .filter((each) => each.queue === queue.name)
              .map((worker, at) => (
                <Row key={`${process.at} ${at}`}>
                  <Name>
                    <Who name={process.at} text={hostAndPid(process.at).join(" pid ")} />
                  </Name>
                  <Cell label="Slots">
                    {worker.isGone ? (
                      <span class="tag bad">gone</span>
                    ) : worker.slots === undefined || worker.busy === undefined ? (
                      <span class="dim">not reported</span>
                    ) : (
                      <span class="slots">
                        <Pips on={worker.busy} of={worker.slots} />
                        <span>
                          {count(worker.busy)} of {count(worker.slots)}
                        </span>
                      </span>
                    )}
                  </Cell>
                  <Cell label="Completed" class="num">
                    {worker.completed === undefined ? <None /> : <Count value={worker.completed} />}
                  </Cell>
                  <Cell label="Failed" class="num">
                    {worker.failed === undefined ? <None /> : <Count value={worker.failed} />}
                  </Cell>
                  <Cell label="Last report" class="num">
                    {isLive.value
                      ? `${wholeDuration(Math.max(0, now.value - worker.reportedAt))} ago`
                      : clock(worker.reportedAt)}
                  </Cell>
                </Row>
              )),
          )}
          {processes.length === 0 && (
            <Empty columns={5}>
              {reportedAt === undefined || queue.workers !== 0
                ? "No worker of this queue reports."
                : `No worker of this queue has reported since ${clock(reportedAt)}.`}
            </Empty>
          )}
        </Table>
        {differences.length > 0 && (
          <div class="foot">
            <span class="warn">
              <Hidden>The options of the workers differ: </Hidden>
              {differences.map(printable).join(". ")}
            </span>
          </div>
        )}
      </div>
    </section>
  );
}
