/**
 * Node.js processes for tests and examples that need several processes. A child communicates over Node's IPC channel,
 * has a name, and is killed at the latest when the process that started it ends. A `.ts` file runs from its source,
 * either as the bundle of the test run or with tsx, and `@x/*` refers to the sources of the packages
 * (tsconfig.check.json). A `.js` file runs unchanged.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { bundleOf } from "./bundles.ts";
import { type Exit, follow } from "./processes.ts";

export interface ChildOptions {
  /** Name for messages and lists of running processes. Default: the name of the file. */
  readonly name?: string;
  readonly args?: readonly string[];
  /** Additional options of Node.js, after the options that run TypeScript: `["--import", "…"]`. */
  readonly execArgv?: readonly string[];
  /** Added to this process's environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Called with each message that the child sends with `process.send`. */
  readonly onMessage?: (message: unknown) => void;
}

/** Spawns a Node.js process. The process starts to run before this function returns, so that no message is lost. */
export function spawnChild(file: string | URL, options: ChildOptions = {}): Child {
  return new Child(typeof file === "string" ? file : fileURLToPath(file), options);
}

const keptLines = 200;

export class Child implements AsyncDisposable {
  readonly name: string;
  /** Resolves when the process has ended and all its messages have arrived. */
  readonly exited: Promise<Exit>;
  readonly #process: ChildProcess;
  readonly #messages: unknown[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #output: string[] = [];
  #exit: Exit | undefined;

  /** Use `spawnChild`. */
  constructor(file: string, options: ChildOptions) {
    this.name = options.name ?? file.slice(file.lastIndexOf("/") + 1);
    const isSource = file.endsWith(".ts");
    const bundle = isSource ? bundleOf(file) : undefined;
    this.#process = spawn(
      process.execPath,
      [
        ...(isSource && bundle === undefined ? ["--import", import.meta.resolve("tsx")] : []),
        ...(options.execArgv ?? []),
        bundle ?? file,
        ...(options.args ?? []),
      ],
      {
        // In its own process group, so that Ctrl-C reaches the child through the process that started it, in the order
        // that this process chooses.
        detached: true,
        stdio: ["ignore", "pipe", "pipe", "ipc"],
        env: {
          ...process.env,
          ...(isSource
            ? { TSX_TSCONFIG_PATH: fileURLToPath(new URL("../../../tsconfig.check.json", import.meta.url)) }
            : {}),
          ...options.env,
        },
      },
    );
    const told = new Promise<void>((resolve) => this.#process.once("disconnect", resolve));
    this.exited = follow(this.#process, this.name).then(async (exit) => {
      // The last messages may arrive after the end of the process.
      await told;
      this.#exit = exit;
      this.#wake();
      return exit;
    });
    this.#process.on("message", (message) => {
      this.#messages.push(message);
      options.onMessage?.(message);
      this.#wake();
    });
    // `send()` also reports a closed channel to its callback. The error of a failed spawn rejects `exited`.
    this.#process.on("error", () => {});
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#output.push(text);
        if (this.#output.length > keptLines) this.#output.shift();
      });
    }
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get isRunning(): boolean {
    return this.#exit === undefined;
  }

  /** The last lines that the process wrote to stdout and stderr. */
  get output(): string {
    return this.#output.join("");
  }

  /** All messages so far. */
  get messages(): readonly unknown[] {
    return this.#messages;
  }

  /** Sends a message. The message is lost if the process has ended. */
  send(message: Readonly<Record<string, unknown>> | string): void {
    if (this.#process.connected) this.#process.send(message, () => {});
  }

  /**
   * Returns the first message that `matches`, and waits for it if it has not arrived yet.
   *
   * @throws Error with the process's output if the process ends without such a message, or after `timeout` ms (default
   * 20,000).
   */
  async message<T>(
    matches: (message: unknown) => message is T,
    options: { readonly timeout?: number } = {},
  ): Promise<T> {
    const timeout = options.timeout ?? 20_000;
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#wake();
    }, timeout);
    try {
      for (let next = 0; ; ) {
        for (; next < this.#messages.length; next++) {
          const message = this.#messages[next];
          if (matches(message)) return message;
        }
        if (this.#exit !== undefined)
          throw new Error(`${this.name} ended (${JSON.stringify(this.#exit)}) before the message\n${this.output}`);
        if (isLate) throw new Error(`${this.name} sent no such message within ${timeout} ms\n${this.output}`);
        await new Promise<void>((resolve) => this.#waiting.add(resolve));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends a signal, SIGKILL by default, and resolves when the process has ended. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<Exit> {
    this.#process.kill(signal);
    return await this.exited;
  }

  /** SIGSTOP. */
  freeze(): void {
    this.#process.kill("SIGSTOP");
  }

  /** SIGCONT. */
  thaw(): void {
    this.#process.kill("SIGCONT");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  #wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const resolve of waiting) resolve();
  }
}
