/** The one dialog of the page: a question before an action, or the details of a row with its actions. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { blocked, dialog, type Dialog as Opened, run, state } from "../model.ts";
import { Command } from "./common.tsx";
import { contentOf } from "./dialog-content.ts";
import { DialogDetails } from "./dialog-details.tsx";

export function Dialog() {
  const box = useRef<HTMLDialogElement>(null);
  const opened = dialog.value;
  // Opens at once: a key that is pressed now is for the dialog.
  useLayoutEffect(() => {
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
  const { title, actions, commands } = contentOf(opened);
  const canAct = state.value?.actions === true;
  const why = blocked.value;
  const shown = canAct ? actions : [];
  return (
    <>
      <h2 id="dialog-title">{title}</h2>
      <DialogDetails opened={opened} />
      {shown.length > 0 && (
        <ul class="effects">
          {shown.map((action) => (
            <li key={action.do}>
              {opened.kind !== "confirm" && <b>{action.label}. </b>}
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
          Close
        </button>
      </p>
    </>
  );
}
