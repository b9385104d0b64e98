/** The details in the dialog: the last ticks of a schedule, the last terms of an election, the checks. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { TickView } from "../../src/page/state.ts";
import { type Dialog, now, state, ticksOf } from "../model.ts";
import { clock, dayClock, duration, latency, printable } from "../words.ts";
import { Checks } from "./checks.tsx";
import { Limits } from "./limits.tsx";

export function DialogDetails({ opened }: { readonly opened: Dialog }) {
  switch (opened.kind) {
    case "checks":
      return <Checks />;
    case "schedule":
      return <Ticks scheduler={opened.scheduler} name={opened.name} />;
    case "election":
      return <Terms name={opened.name} />;
    case "limits":
      return <Limits queue={opened.queue} name={opened.key} policy={opened.policy} />;
    default:
      return null;
  }
}

/** The details of the last ticks, read when the dialog opens. */
function Ticks({ scheduler, name }: { readonly scheduler: string; readonly name: string }) {
  const [ticks, setTicks] = useState<readonly TickView[] | string | undefined>(undefined);
  useEffect(() => {
    let isOpen = true;
    void ticksOf(scheduler, name).then((found) => {
      if (isOpen) setTicks(found);
    });
    return () => {
      isOpen = false;
    };
  }, [scheduler, name]);
  if (ticks === undefined) return <p class="dim">Reading …</p>;
  if (typeof ticks === "string") return <p class="bad">{ticks}</p>;
  return (
    <HistoryTable
      id="ticks"
      title="Last ticks"
      name={name}
      columns={["Due", "Outcome", "Late", "Took", "Attempt", "Why"]}
    >
      {ticks.map(({ outcome, at, lateMs, tookMs, attempt, error, reason, count }, place) => (
        <tr key={place}>
          <th scope="row">{dayClock(at, now.peek())}</th>
          <td class={["failed", "missed", "unfinished"].includes(outcome) ? "bad" : undefined}>{outcome}</td>
          <td>{lateMs === undefined ? "–" : latency(lateMs)}</td>
          <td>{tookMs === undefined ? "–" : latency(tookMs)}</td>
          <td>{attempt ?? "–"}</td>
          <td>{printable(error ?? reason ?? (count === undefined ? "" : `${count} ticks`))}</td>
        </tr>
      ))}
      {ticks.length === 0 && (
        <tr>
          <td colSpan={6}>The nodes keep no tick.</td>
        </tr>
      )}
    </HistoryTable>
  );
}

/** The last terms of an election, the newest first. */
function Terms({ name }: { readonly name: string }) {
  const election = state.value?.elections.find((each) => each.name === name);
  if (election === undefined) return null;
  const { leader, terms } = election;
  return (
    <>
      {leader?.value !== undefined && (
        <p>
          The leader's value is <code>{printable(leader.value)}</code>. Its lease ends in {duration(leader.expiresInMs)}{" "}
          unless it is renewed.
        </p>
      )}
      <HistoryTable title="Last terms" name={name} columns={["Term", "Leader", "From", "To", "End"]}>
        {terms.toReversed().map(({ term, id, since, until, end }) => (
          <tr key={term}>
            <th scope="row">{term}</th>
            <td>{printable(id)}</td>
            <td>{dayClock(since, now.value)}</td>
            <td>{until === undefined ? "now" : clock(until)}</td>
            <td>{end ?? "–"}</td>
          </tr>
        ))}
      </HistoryTable>
    </>
  );
}

/** A table of past events, with the rows as its children. `title` and `name` label the table for screen readers. */
function HistoryTable({
  id,
  title,
  name,
  columns,
  children,
}: {
  readonly id?: string;
  readonly title: string;
  readonly name: string;
  readonly columns: readonly string[];
  readonly children: ComponentChildren;
}) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={title}>
      <table id={id} aria-label={`${title} of ${printable(name)}`}>
        <thead>
          <tr>
            {columns.map((text) => (
              <th key={text} scope="col">
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
