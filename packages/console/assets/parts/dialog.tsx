/** The one dialog of the page: a question before an action, or the details of a row with its actions. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { TickView } from "../../src/page/state.ts";
import { blocked, dialog, now, type Dialog as Opened, outcome, run, state, ticksOf } from "../model.ts";
import { clock, dayClock, duration, latency, printable } from "../words.ts";
import { Checks } from "./attention.tsx";
import { Command } from "./common.tsx";

export function Dialog() {
  const box = useRef<HTMLDialogElement>(null);
  const opened = dialog.value;
  useEffect(() => {
    if (opened !== undefined && box.current?.open === false) box.current.showModal();
    if (opened === undefined) box.current?.close();
  }, [opened]);
  return (
    <dialog ref={box} aria-labelledby="dialog-title" onClose={() => (dialog.value = undefined)}>
      {opened !== undefined && <Content opened={opened} />}
    </dialog>
  );
}

const close = (): void => {
  dialog.value = undefined;
};

function Content({ opened }: { readonly opened: Opened }) {
  const { title, kind, actions, commands } = opened;
  const canAct = state.value?.actions === true;
  const why = blocked.value;
  const shown = canAct ? actions : [];
  return (
    <>
      <h2 id="dialog-title">{title}</h2>
      {kind === "schedule" && <Ticks scheduler={opened.scheduler ?? ""} name={opened.name} />}
      {kind === "election" && <Terms name={opened.name} />}
      {kind === "checks" && <Checks />}
      {shown.length > 0 && (
        <ul class="effects">
          {shown.map((action) => (
            <li key={action.do}>
              {kind !== "confirm" && <b>{action.label}. </b>}
              {action.effect}
            </li>
          ))}
        </ul>
      )}
      {shown.length > 0 && why !== undefined && <p class="bad">{why}</p>}
      {!canAct && actions.length > 0 && <p class="dim">This page only reads. The command line does the same:</p>}
      {commands.map((text) => (
        <p key={text}>
          <Command text={text} />
        </p>
      ))}
      <p class="buttons">
        {shown.map((action) => (
          <button
            key={action.do}
            type="button"
            class="btn main"
            aria-disabled={why !== undefined}
            onClick={() => {
              if (why !== undefined) return;
              close();
              void run(action);
            }}
          >
            {action.label}
          </button>
        ))}
        <button type="button" class="btn" onClick={close}>
          {shown.length > 0 ? "Cancel" : "Close"}
        </button>
      </p>
    </>
  );
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
    <div class="scroll" tabIndex={0} role="group" aria-label="Last ticks">
      <table id="ticks" aria-label={`Last ticks of ${printable(name)}`}>
        <thead>
          <tr>
            {["Due", "Outcome", "Late", "Took", "Attempt", "Why"].map((text) => (
              <th key={text} scope="col">
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
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
        </tbody>
      </table>
    </div>
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
      <div class="scroll" tabIndex={0} role="group" aria-label="Last terms">
        <table aria-label={`Last terms of ${printable(name)}`}>
          <thead>
            <tr>
              {["Term", "Leader", "From", "To", "End"].map((text) => (
                <th key={text} scope="col">
                  {text}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {terms.toReversed().map(({ term, id, since, until, end }) => (
              <tr key={term}>
                <th scope="row">{term}</th>
                <td>{printable(id)}</td>
                <td>{dayClock(since, now.value)}</td>
                <td>{until === undefined ? "now" : clock(until)}</td>
                <td>{end ?? "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The outcome of the last action, for some seconds. */
export function Outcome() {
  const told = outcome.value;
  return (
    <p id="outcome" role="status" class={told === undefined ? "outcome none" : told.isBad ? "outcome bad" : "outcome"}>
      {told === undefined ? "" : printable(told.text)}
    </p>
  );
}
