/** The commands by name, their arguments and options, and their exit codes. */
import { createRequire } from "node:module";
import { QuorumUnreachableError } from "@x/redlock-core";
import { Command as Commander, CommanderError, InvalidArgumentError } from "commander";
import type { Command, IsGood } from "./command.ts";
import { checkNodes } from "./commands/check.ts";
import {
  dropKey,
  explainJob,
  jobsOfKey,
  keyPolicy,
  listPolicies,
  type PolicyChange,
  pauseKey,
  policyOfKey,
  resumeKey,
  retryJob,
  topKeys,
} from "./commands/keys.ts";
import { leaderStatus, resignLeader, watchLeader } from "./commands/leader.ts";
import { inspectLock, releaseLock } from "./commands/locks.ts";
import {
  listSchedules,
  pauseSchedule,
  resumeSchedule,
  scheduleHistory,
  triggerSchedule,
} from "./commands/schedules.ts";
import { type ConnectionOptions, Connections } from "./connections.ts";
import { ConsoleFailure } from "./failure.ts";
import { Output, printable } from "./output.ts";
import { type ServeOptions, servePage } from "./page/serve.ts";
import type { Terminal } from "./terminal.ts";

/**
 * 0: done, and the answer is good. 1: the answer is not good, or a question was answered by no. 2: it could not be
 * done.
 */
export type ExitCode = 0 | 1 | 2;

interface Shared {
  readonly redis?: readonly string[];
  readonly cluster?: true;
  readonly keyPrefix?: string;
  readonly maxTtl?: number;
  readonly quarantine: boolean;
  readonly json?: true;
  readonly watch?: number | true;
  readonly yes?: true;
}

const DEFAULT_WATCH_SECONDS = 2;
const { version } = createRequire(import.meta.url)("../package.json") as { readonly version: string };

/**
 * Runs one command, such as `["locks", "inspect", "account:42"]`, and resolves with its exit code. Never rejects: what
 * went wrong is written to `terminal.writeError`.
 */
export async function runConsole(args: readonly string[], terminal: Terminal): Promise<ExitCode> {
  let isGood: IsGood = true;
  const program = programOf(terminal, (answer) => {
    isGood = answer;
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return isGood ? 0 : 1;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    terminal.writeError(`${printable(inWords(error))}\n`);
    return 2;
  }
}

function inWords(error: unknown): string {
  if (error instanceof ConsoleFailure) return [error.message, error.advice].filter((text) => text !== "").join("\n");
  if (error instanceof QuorumUnreachableError) return `${error.message}\nTry: x-console check`;
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

function programOf(terminal: Terminal, onAnswer: (isGood: IsGood) => void): Commander {
  const program = new Commander("x-console")
    .description("Looks at locks, leaders, schedules and exclusive BullMQ jobs, and operates them.")
    .version(version, "--version", "tell the version of this package")
    .option("--redis <url>", "a node; give all in the services' order (default: REDIS_URL, commas between)", addresses)
    .option("--cluster", "the nodes are members of one Redis Cluster")
    .option("--key-prefix <prefix>", "the keyPrefix of the services' Redlock")
    .option("--max-ttl <ms>", "the maxTtl of the services' Redlock", wholeNumber)
    .option("--no-quarantine", "the services' Redlock has quarantine: false")
    .option("--json", "answer in JSON, one line a look")
    .option("--watch [seconds]", `look again and again (default: every ${DEFAULT_WATCH_SECONDS} s)`, positive)
    .option("-y, --yes", "do not ask before something is changed")
    .addHelpText("after", "\nExit codes: 0 done, 1 the answer is not good (see each command), 2 it could not be done.")
    .exitOverride()
    // Commander repeats an unknown command or argument in its message.
    .configureOutput({
      writeOut: terminal.write,
      writeErr: (text) => terminal.writeError(printable(withoutPasswords(text))),
    })
    .showHelpAfterError("(--help tells more)");

  const running = (run: (command: Command) => Promise<IsGood>): Promise<void> =>
    withCommand(program.opts<Shared>(), terminal, async (command) => onAnswer(await run(command)));
  addLocks(program, running);
  addLeaders(program, running);
  addSchedules(program, running);
  addKeys(program, running);
  addServe(program, running);
  return program;
}

/**
 * Returns the text with `***` instead of the user and password of each address. An address that is mistaken for a
 * command or an option is quoted in the message about that mistake.
 */
function withoutPasswords(text: string): string {
  return text.replaceAll(/\S+/g, (word) => {
    const end = word.lastIndexOf("@");
    const [quote = ""] = /^'?/.exec(word) ?? [];
    return word.slice(0, Math.max(0, end)).includes(":") ? `${quote}***${word.slice(end)}` : word;
  });
}

type Running = (run: (command: Command) => Promise<IsGood>) => Promise<void>;

function addLocks(program: Commander, running: Running): void {
  program
    .command("check")
    .description("look for what is wrong with the lock nodes; 1: something is")
    .action(() => running(checkNodes));
  const locks = program.command("locks").description("who has a lock");
  locks
    .command("inspect <resource>")
    .description("what each node says of a lock, and all together; 1: no quorum answered")
    .action((resource: string) => running((command) => inspectLock(command, resource)));
  locks
    .command("watch <resource>")
    .description("as inspect --watch")
    .action((resource: string) =>
      running((command) => inspectLock({ ...command, watch: command.watch ?? DEFAULT_WATCH_SECONDS }, resource)),
    );
  locks
    .command("release <resource>")
    .description("take a lock away from whoever has it; 1: nobody had it")
    .action((resource: string) => running((command) => releaseLock(command, resource)));
}

function addLeaders(program: Commander, running: Running): void {
  const leader = program.command("leader").description("who leads an election");
  leader
    .command("status <election>")
    .description("who leads; 1: nobody")
    .action((name: string) => running((command) => leaderStatus(command, name)));
  leader
    .command("watch <election>")
    .description("tell each change of the leader")
    .action((name: string) => running((command) => watchLeader(command, name)));
  leader
    .command("resign <election>")
    .description("ask the leader to drain and hand over; 1: nobody leads")
    .action((name: string) => running((command) => resignLeader(command, name)));
}

function addSchedules(program: Commander, running: Running): void {
  const schedules = program.command("schedules").description("the schedules of an election's scheduler");
  const one = (usage: string, description: string): Commander =>
    schedules
      .command(usage)
      .description(description)
      .option("--scheduler <prefix>", "the keyPrefix of the services' LeaderScheduler");
  one("list <election>", "when each is due, what became of its last tick; 1: nobody runs them")
    .option("--history <count>", "what became of so many of its last ticks, up to 100", tickCount)
    .action((election: string, options: { scheduler?: string; history?: number }) =>
      running((command) => listSchedules(command, { election, ...options })),
    );
  one("history <election> <schedule>", "what became of the last ticks; 1: the newest failed, or has no end")
    .option("--limit <count>", "how many", wholeNumber, 20)
    .action((election: string, schedule: string, options: { scheduler?: string; limit: number }) =>
      running((command) => scheduleHistory(command, { election, schedule, ...options })),
    );
  for (const [verb, description, act] of [
    ["pause", "run no more ticks of a schedule", pauseSchedule],
    ["resume", "end a pause", resumeSchedule],
    ["trigger", "have the leader run a schedule once, now", triggerSchedule],
  ] as const) {
    one(`${verb} <election> <schedule>`, description).action(
      (election: string, schedule: string, options: { scheduler?: string }) =>
        running((command) => act(command, { election, schedule, ...options })),
    );
  }
}

const OF_WHICH_KEY = "the job's key, where several partitions of a queue have a job of that id";

function addKeys(program: Commander, running: Running): void {
  const keys = program.command("keys").description("the keys of a queue with exclusive workers");
  const one = (usage: string, description: string): Commander =>
    keys.command(usage).description(description).option("--prefix <prefix>", "BullMQ's prefix", "bull");
  one("top <queue>", "the keys with the longest lines")
    .option("--limit <count>", "how many", wholeNumber, 20)
    .action((queue: string, options: { prefix: string; limit: number }) =>
      running((command) => topKeys(command, { queue, ...options })),
    );
  one("jobs <queue> <key>", "who has a key, and who waits for it")
    .option("--limit <count>", "how many", wholeNumber, 100)
    .action((queue: string, key: string, options: { prefix: string; limit: number }) =>
      running((command) => jobsOfKey(command, { queue, key, ...options })),
    );
  one("explain <queue> <jobId>", "why a job waits; 1: there is no such job")
    .option("--key <key>", OF_WHICH_KEY)
    .action((queue: string, jobId: string, options: { prefix: string; key?: string }) =>
      running((command) => explainJob(command, { queue, jobId, ...options })),
    );
  one("pause <queue> <key>", "start nothing of a key any more; 1: it was paused before")
    .option("--reason <text>", "what others are told", "paused by an operator")
    .action((queue: string, key: string, options: { prefix: string; reason: string }) =>
      running((command) => pauseKey(command, { queue, key, ...options })),
    );
  one("drop <queue> <key>", "remove the jobs that wait for a key; 1: there were none").action(
    (queue: string, key: string, options: { prefix: string }) =>
      running((command) => dropKey(command, { queue, key, ...options })),
  );
  one("retry <queue> <jobId>", "run a failed job again; 1: there is no such job, or it has not failed")
    .option("--key <key>", OF_WHICH_KEY)
    .action((queue: string, jobId: string, options: { prefix: string; key?: string }) =>
      running((command) => retryJob(command, { queue, jobId, ...options })),
    );
  one("policy <queue> [key]", "how the workers are set up, or what holds for a key alone; 1: see the manual")
    .option("--concurrency <count>", "let so many jobs of the key run at a time", wholeNumber)
    .option("--rate <max/ms>", "let so many start in so many ms, such as 100/60000", rate)
    .option("--max-waiting <count>", "let so many wait", (text: string) => ({ max: wholeNumber(text) }))
    .option("--weight <count>", "let so many start when it is the key's turn", wholeNumber)
    .option("--remove", "let the workers' options hold again")
    .action((queue: string, key: string | undefined, options: { prefix: string } & PolicyChange) =>
      running(async (command) => {
        if (key !== undefined) return await policyOfKey(command, { queue, key, ...options });
        if (Object.keys(options).length > 1) throw new ConsoleFailure("Limits are of one key: name it.");
        return await keyPolicy(command, { queue, ...options });
      }),
    );
  one("policies <queue>", "the keys that have limits of their own")
    .option("--limit <count>", "how many", wholeNumber, 1_000)
    .action((queue: string, options: { prefix: string; limit: number }) =>
      running((command) => listPolicies(command, { queue, ...options })),
    );
  one("resume <queue> <key>", "end a pause, or the halt after a failed job; 1: it was not paused").action(
    (queue: string, key: string, options: { prefix: string }) =>
      running((command) => resumeKey(command, { queue, key, ...options })),
  );
}

function addServe(program: Commander, running: Running): void {
  program
    .command("serve")
    .description("show everything on a live page, until Ctrl-C")
    .option("--port <port>", "where it listens (default: a free port)", portNumber, 0)
    .option("--host <address>", "the address that it listens on", "127.0.0.1")
    .option(
      "--allow-host <name>",
      "a host name by which browsers reach it, besides those of the loopback",
      collected,
      [],
    )
    .option("--actions", "let the page change something", false)
    .option("--election <name>", "an election to show, besides those that are found", collected, [])
    .option("--queue <name>", "a queue to show (default: those that are found on the first node)", collected, [])
    .option("--prefix <prefix>", "BullMQ's prefix", "bull")
    .action((options: ServeOptions) => running((command) => servePage(command, options)));
}

async function withCommand(
  options: Shared,
  terminal: Terminal,
  run: (command: Command) => Promise<void>,
): Promise<void> {
  const named = addressesOf(options, terminal);
  await using connections = new Connections({ ...options, ...named, cluster: options.cluster === true });
  const output = new Output({
    isJson: options.json === true,
    hasColour: terminal.isInteractive && (terminal.env["NO_COLOR"] ?? "") === "",
    write: terminal.write,
  });
  const watch = options.watch === true ? DEFAULT_WATCH_SECONDS : options.watch;
  await run({ connections, output, terminal, watch, isConfirmed: options.yes === true });
}

/** Returns the addresses of the nodes, and what named them. An empty `REDIS_URL` is none. */
function addressesOf({ redis }: Shared, { env }: Terminal): Pick<ConnectionOptions, "urls" | "source"> {
  if (redis !== undefined) return { urls: redis, source: "--redis" };
  const urls = addressesIn(env["REDIS_URL"] ?? "");
  return urls.length > 0 ? { urls, source: "REDIS_URL" } : { urls: ["redis://localhost:6379"], source: undefined };
}

function addressesIn(text: string): readonly string[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");
}

function addresses(text: string, before: readonly string[] | undefined): readonly string[] {
  const all = [...(before ?? []), ...addressesIn(text)];
  if (all.length === 0) throw new ConsoleFailure("--redis: no address was given", "Such as redis://redis-1:6379.");
  return all;
}

function collected(text: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), ...text.split(",")];
}

function rate(text: string): { readonly max: number; readonly duration: number } {
  const [max = "", duration = "", ...more] = text.split("/");
  if (more.length > 0) throw new InvalidArgumentError("It must be <jobs>/<ms>, such as 100/60000.");
  return { max: wholeNumber(max), duration: wholeNumber(duration) };
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text) || Number(text) < 1) throw new InvalidArgumentError("It must be an integer from 1.");
  return Number(text);
}

function tickCount(text: string): number {
  const count = wholeNumber(text);
  if (count > 100) throw new InvalidArgumentError("It must be at most 100.");
  return count;
}

function portNumber(text: string): number {
  if (!/^\d+$/.test(text) || Number(text) > 65_535)
    throw new InvalidArgumentError("It must be a port from 0 to 65535.");
  return Number(text);
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0) || value > 86_400) throw new InvalidArgumentError("It must be a number of seconds up to 86400.");
  return value;
}
