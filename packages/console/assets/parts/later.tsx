/**
 * Loads the parts that the first view does not need. The parts load after the first state, so that an opened queue
 * needs no answer of the page's server.
 */
import { effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { state } from "../model.ts";

type Details = typeof import("./details.tsx");

const details = signal<Details | undefined>(undefined);
const isLate = signal(false);

/** Browsers remember that a module could not be loaded, so each further try has an address of its own. */
async function load(tries = 0): Promise<void> {
  const address = `./details.js?${tries}`;
  try {
    details.value = await (tries === 0 ? import("./details.tsx") : (import(address) as Promise<Details>));
  } catch {
    isLate.value = true;
    setTimeout(() => void load(tries + 1), 2_000);
  }
}

const stop = effect(() => {
  if (state.value === undefined) return;
  void load();
  // The effect has no name yet if the state is known at its first run.
  queueMicrotask(() => stop());
});

/** Shows a part as soon as it is loaded. `isQuiet`: the part is empty unless somebody has asked for it. */
export function Later({
  show,
  isQuiet = false,
}: {
  readonly show: (details: Details) => ComponentChildren;
  readonly isQuiet?: boolean;
}) {
  if (details.value !== undefined) return <>{show(details.value)}</>;
  if (isQuiet) return null;
  return <p class="empty">{isLate.value ? "The page's server does not answer. The page tries again." : "Loading …"}</p>;
}
