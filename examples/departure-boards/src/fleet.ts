import { type Child, spawnChild } from "@x/test-support";
import { type Settings, toEnvironment } from "./settings.ts";

export type Role = "scheduler" | "worker";

const endTimeoutMs = 15_000;
const extension = import.meta.url.endsWith(".ts") ? ".ts" : ".js";

/** The processes of a run, by name: `scheduler-1`, `worker-2`. */
export class Fleet {
  readonly #settings: Settings;
  readonly #children = new Map<string, Child>();
  readonly #expectedEnds = new Set<Child>();
  /** What went wrong: processes that ended by themselves, or not when asked to. */
  readonly problems: string[] = [];
  /** What the workers reported as `error` events. */
  readonly errors: string[] = [];

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  start(role: Role, number: number): void {
    const name = `${role}-${number}`;
    const child = spawnChild(new URL(`./${role}${extension}`, import.meta.url), {
      name,
      env: toEnvironment(this.#settings, name),
      onMessage: (message) => this.errors.push(`${name}: ${errorIn(message)}`),
    });
    this.#children.set(name, child);
    void child.exited.then(({ code, signal }) => {
      if (this.#expectedEnds.has(child)) return;
      this.problems.push(`${name} ended by itself (${signal ?? `code ${code}`}): ${errorOf(child.output)}`);
    });
  }

  /** SIGKILL. */
  async kill(name: string): Promise<void> {
    const child = this.#child(name);
    this.#expectedEnds.add(child);
    await child.kill();
  }

  freeze(name: string): void {
    this.#child(name).freeze();
  }

  thaw(name: string): void {
    this.#child(name).thaw();
  }

  /** Asks every process to end, and waits; one that does not end within 15 s is killed, and that is a problem. */
  async end(): Promise<void> {
    const running = [...this.#children].filter(([, child]) => child.isRunning);
    await Promise.all(
      running.map(async ([name, child]) => {
        this.#expectedEnds.add(child);
        const timer = setTimeout(() => {
          this.problems.push(`${name} did not end within ${endTimeoutMs / 1000} s`);
          void child.kill();
        }, endTimeoutMs);
        const { code } = await child.kill("SIGTERM");
        clearTimeout(timer);
        if (code !== 0 && code !== null)
          this.problems.push(`${name} ended with code ${code}: ${errorOf(child.output)}`);
      }),
    );
  }

  /** SIGKILL for all that run. */
  async killAll(): Promise<void> {
    await Promise.all([...this.#children.keys()].map((name) => this.kill(name)));
  }

  #child(name: string): Child {
    const child = this.#children.get(name);
    if (child === undefined) throw new Error(`no process ${name}`);
    return child;
  }
}

/** The line of an uncaught error's output that says what it was. */
function errorOf(output: string): string {
  const lines = output.trim().split("\n");
  return lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1) ?? "";
}

/** Returns the error that a worker reports, as text. */
function errorIn(message: unknown): string {
  const { error } = { ...(message as { readonly error?: unknown }) };
  return typeof error === "string" ? error : JSON.stringify(message);
}
