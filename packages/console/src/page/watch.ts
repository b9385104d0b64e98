/**
 * Looks at all sections once per `refresh`, however many browsers are open, and sends each look to the open browsers.
 * Without an open browser, no look takes place.
 */
import type { Clock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { Sections, type Sources } from "./sections.ts";
import { type BrowserQuery, jsonOf, type PageState, type ProblemView, type SharedState } from "./state.ts";
import { textOf } from "./watched.ts";

interface WatchParts extends Sources {
  readonly refresh: number;
  readonly hasActions: boolean;
}

/** A state, and its JSON. The shared part of the JSON is created once per look. */
interface EncodedState {
  readonly state: PageState;
  readonly text: () => string;
}

interface Viewer {
  readonly wanted: BrowserQuery;
  readonly send: (encoded: EncodedState) => void;
}

export class Watch {
  readonly sections: Sections;
  readonly #clock: Clock;
  readonly #refreshMs: number;
  readonly #hasActions: boolean;
  readonly #viewers = new Set<Viewer>();
  /** The shared state and its JSON. Undefined if the state has changed since. */
  #shared: { readonly state: SharedState; text: string | undefined } | undefined;
  #looks = 0;
  #looking: Promise<void> | undefined;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #running: AbortController | undefined;

  constructor({ refresh, hasActions, ...sources }: WatchParts) {
    this.#clock = protocolOf(sources.redlock).clock;
    this.#refreshMs = refresh;
    this.#hasActions = hasActions;
    this.sections = new Sections(sources, () => Array.from(this.#viewers, ({ wanted }) => wanted));
  }

  /** Sends each look to a browser until the returned function is called. */
  join(viewer: Viewer): () => void {
    this.#viewers.add(viewer);
    // An error of the page must not end the application around it.
    if (this.#running === undefined) void this.#run().catch((error: unknown) => this.note(textOf(error)));
    else if (this.#looks > 0) viewer.send(this.stateFor(viewer.wanted));
    return () => {
      this.#viewers.delete(viewer);
      if (this.#viewers.size === 0) this.#stop();
    };
  }

  /** Looks at everything, unless the last look is recent. */
  async fresh(): Promise<void> {
    if (this.#clock.monotonicMs() - this.#lookedAtMs < this.#refreshMs) return;
    await this.#look();
  }

  /** Reads everything, even what the page finds and reads over several looks, and returns the problems. */
  async readAll(): Promise<{ readonly problems: readonly ProblemView[]; readonly now: number }> {
    await this.sections.searchNodes();
    // The first look is complete. Elections and histories of failing schedules are read in turns.
    this.#looks = 0;
    await this.#look();
    const looks = this.sections.looksForAll;
    for (let look = 1; look < looks; look += 1) await this.#look();
    return { problems: this.sections.openProblems, now: this.#clock.wallMs() };
  }

  /** Shows a line to everybody who has the page open, as a mark on the time line. */
  note(text: string, kind: "note" | "fault" = "note"): void {
    this.sections.mark(text, kind);
    this.#shared = undefined;
  }

  async close(): Promise<void> {
    this.#viewers.clear();
    this.#stop();
    await this.sections.close();
  }

  /** Returns the state for a browser. The shared part is created once per look. */
  stateFor(wanted: BrowserQuery): EncodedState {
    const shared = (this.#shared ??= {
      state: { actions: this.#hasActions, ...this.sections.shared },
      text: undefined,
    });
    const own = this.sections.ownFor(wanted);
    const text = (): string => {
      shared.text ??= jsonOf(shared.state);
      return `${shared.text.slice(0, -1)},${jsonOf(own).slice(1)}`;
    };
    return { state: { ...shared.state, ...own }, text };
  }

  async #run(): Promise<void> {
    const running = new AbortController();
    this.#running = running;
    // What the last audience saw may be long ago: the first look reads everything.
    this.#looks = 0;
    while (!running.signal.aborted) {
      await this.#look();
      for (const viewer of this.#viewers) viewer.send(this.stateFor(viewer.wanted));
      await sleep(this.#clock, this.#refreshMs, running.signal).catch(() => undefined);
    }
  }

  #stop(): void {
    this.#running?.abort();
    this.#running = undefined;
  }

  /** Runs one look at a time. Never rejects: each error is shown in its own section. */
  #look(): Promise<void> {
    if (this.#looking !== undefined) return this.#looking;
    this.#looking = this.sections.look(this.#looks).finally(() => {
      this.#looking = undefined;
      this.#shared = undefined;
      this.#lookedAtMs = this.#clock.monotonicMs();
    });
    this.#looks += 1;
    return this.#looking;
  }
}
