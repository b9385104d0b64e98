/** The state of a key, in the words of the guide about stuck keys. */
import type { KeyRow } from "../../src/page/state.ts";

const WORDS: Readonly<Record<KeyRow["state"], { readonly text: string; readonly kind: string }>> = {
  running: { text: "runs", kind: "on" },
  waits: { text: "waits for a slot", kind: "" },
  stalled: { text: "stalled", kind: "tag bad" },
  limited: { text: "limited", kind: "tag lim" },
  halted: { text: "halted", kind: "tag bad" },
  paused: { text: "paused", kind: "tag warn" },
};

export function KeyState({ state }: { readonly state: KeyRow["state"] }) {
  const { text, kind } = WORDS[state];
  if (kind.startsWith("tag")) return <span class={kind}>{text}</span>;
  return (
    <span class="state">
      <i class={kind} />
      {text}
    </span>
  );
}
