/** Results of a search on the overview: queues by name, and a link to the key of this name in each queue. */
import { hashOf, state, tables } from "../model.ts";
import { printable } from "../words.ts";

/** The most queues that are offered. */
const MOST = 8;

export function Found() {
  const { findLock: text } = tables.value;
  const queues = state.value?.queues ?? [];
  if (text === "" || queues.length === 0) return null;
  const named = queues.filter(({ name }) => name.includes(text)).slice(0, MOST);
  return (
    <div class="card found" role="region" aria-label="Found">
      {named.length > 0 && (
        <p>
          <b>Queues:</b>{" "}
          {named.map(({ name }) => (
            <a key={name} class="gap-after" href={hashOf(name)}>
              {printable(name)}
            </a>
          ))}
        </p>
      )}
      <p>
        <b>Open key</b> <span class="mono">{printable(text)}</span> in{" "}
        {queues.slice(0, MOST).map(({ name }) => (
          <a key={name} class="gap-after" href={hashOf(name, text)}>
            {printable(name)}
          </a>
        ))}
      </p>
      <p class="dim">The locks below are those whose names contain the text.</p>
    </div>
  );
}
