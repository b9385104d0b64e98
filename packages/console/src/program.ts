/** The commands by name, their arguments and options, and their exit codes. */
import { createRequire } from "node:module";
import { QuorumUnreachableError } from "@x/redlock-core";
import { Command, CommanderError, InvalidArgumentError } from "commander";
import type { CommandContext, IsGood } from "./command.ts";
import { checkBullMQ } from "./commands/bullmq.ts";
import { checkNodes } from "./commands/check.ts";
import { setExclusion, showExclusion } from "./commands/exclusion.ts";
import {
  cancelJobs,
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
import { showProblems } from "./commands/problems.ts";
import {
  listSchedules,
  pauseSchedule,
  previewSchedule,
  removeSchedule,
  resumeSchedule,
  scheduleHistory,
  triggerSchedule,
} from "./commands/schedules.ts";
import { type ConnectionOptions, Connections } from "./connections.ts";
import { ConsoleFailure } from "./failure.ts";
import { Output, printable, withoutPasswords } from "./output.ts";
import { type ServeOptions, servePage } from "./page/serve.ts";
import type { Terminal } from "./terminal.ts";

/** 0: done, with a good answer. 1: the answer is not good, or the user answered no. 2: the command failed. */
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
 * Runs one command, such as `["locks", "inspect", "account:42"]`, and resolves with its exit code. Never rejects:
 * errors are written to `terminal.writeError`.
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

function programOf(terminal: Terminal, onAnswer: (isGood: IsGood) => void): Command {
  const program = new Command("x-console")
    .description("Shows and operates locks, leaders, schedules and exclusive BullMQ jobs.")
    .version(version, "--version", "print the version of this package")
    .option(
      "--redis <url>",
      "a lock node; pass all nodes in the services' order (default: REDIS_URL, separated by commas)",
      addresses,
    )
    .option("--cluster", "the nodes are members of one Redis Cluster")
    .option("--key-prefix <prefix>", "the keyPrefix of the services' Redlock")
    .option("--max-ttl <ms>", "the maxTtl of the services' Redlock", wholeNumber)
    .option("--no-quarantine", "the services' Redlock has quarantine: false")
    .option("--json", "answer in JSON, one line per look")
    .option("--watch [seconds]", `repeat the command (default: every ${DEFAULT_WATCH_SECONDS} s)`, positive)
    .option("-y, --yes", "do not ask before a change")
    .addHelpText("after", "\nExit codes: 0 done, 1 the answer is not good (see each command), 2 the command failed.")
    .exitOverride()
    // Commander repeats an unknown command or argument in its message.
    .configureOutput({
      writeOut: terminal.write,
      writeErr: (text) => terminal.writeError(printable(withoutPasswords(text))),
    })
    .showHelpAfterError("(--help shows more)");

  const running = (run: (context: CommandContext) => Promise<IsGood>): Promise<void> =>
    withContext(program.opts<Shared>(), terminal, async (context) => onAnswer(await run(context)));
  addLocks(program, running);
  addLeaders(program, running);
  addSchedules(program, running);
  addKeys(program, running);
  addServe(program, running);
  addProblems(program, running);
  return program;
}

type Running = (run: (context: CommandContext) => Promise<IsGood>) => Promise<void>;

function addLocks(program: Command, running: Running): void {
  program
    .command("check")
    .description("look for problems of the lock nodes; 1: a problem was found")
    .action(() => running(checkNodes));
  program
    .command("bullmq")
    .description("compare BullMQ's scripts with the tested ones, and test unknown ones; 1: not to be used")
    .option("--test", "test the scripts even if they are known", false)
    .option("--diff", "show what differs from the nearest tested release, which npm downloads", false)
    .action((options: { test: boolean; diff: boolean }) => running((context) => checkBullMQ(context, options)));
  const locks = program.command("locks").description("the holder of a lock");
  locks
    .command("inspect <resource>")
    .description("the state of a lock on each node and in total; 1: no quorum answered")
    .action((resource: string) => running((context) => inspectLock(context, resource)));
  locks
    .command("watch <resource>")
    .description("the same as inspect --watch")
    .action((resource: string) =>
      running((context) => inspectLock({ ...context, watch: context.watch ?? DEFAULT_WATCH_SECONDS }, resource)),
    );
  locks
    .command("release <resource>")
    .description("release a lock by force; 1: nobody held the lock")
    .action((resource: string) => running((context) => releaseLock(context, resource)));
}

function addLeaders(program: Command, running: Running): void {
  const leader = program.command("leader").description("the leader of an election");
  leader
    .command("status <election>")
    .description("the leader; 1: nobody leads")
    .action((name: string) => running((context) => leaderStatus(context, name)));
  leader
    .command("watch <election>")
    .description("print each change of the leader")
    .action((name: string) => running((context) => watchLeader(context, name)));
  leader
    .command("resign <election>")
    .description("ask the leader to drain and hand over; 1: nobody leads")
    .action((name: string) => running((context) => resignLeader(context, name)));
}

function addSchedules(program: Command, running: Running): void {
  const schedules = program.command("schedules").description("the schedules of an election's scheduler");
  const one = (usage: string, description: string): Command =>
    schedules
      .command(usage)
      .description(description)
      .option("--scheduler <prefix>", "the keyPrefix of the services' LeaderScheduler");
  one("list <election>", "the next time of each schedule and the outcome of its last tick; 1: nobody leads")
    .option("--history <count>", "show the outcomes of this many last ticks, up to 100", listedCount)
    .action((election: string, options: { scheduler?: string; history?: number }) =>
      running((context) => listSchedules(context, { election, ...options })),
    );
  one("history <election> <schedule>", "the outcomes of the last ticks; 1: the newest tick failed or is unfinished")
    .option("--limit <count>", "how many", wholeNumber, 20)
    .action((election: string, schedule: string, options: { scheduler?: string; limit: number }) =>
      running((context) => scheduleHistory(context, { election, schedule, ...options })),
    );
  one("preview <election> <schedule>", "the next ticks of a schedule as data; 1: there is none")
    .option("--limit <count>", "how many, up to 1,000", wholeNumber, 20)
    .action((election: string, schedule: string, options: { scheduler?: string; limit: number }) =>
      running((context) => previewSchedule(context, { election, schedule, ...options })),
    );
  for (const [verb, description, act] of [
    ["pause", "run no more ticks of a schedule", pauseSchedule],
    ["resume", "end a pause", resumeSchedule],
    ["trigger", "ask the leader to run a schedule once, now", triggerSchedule],
    ["remove", "remove a schedule as data", removeSchedule],
  ] as const) {
    one(`${verb} <election> <schedule>`, description).action(
      (election: string, schedule: string, options: { scheduler?: string }) =>
        running((context) => act(context, { election, schedule, ...options })),
    );
  }
}

const OF_WHICH_KEY = "the job's key, if several partitions of a queue have a job with this ID";

function addKeys(program: Command, running: Running): void {
  const keys = program.command("keys").description("the keys of a queue with exclusive workers");
  const one = (usage: string, description: string): Command =>
    keys.command(usage).description(description).option("--prefix <prefix>", "BullMQ's prefix", "bull");
  one("top <queue>", "the keys with the longest lines")
    .option("--limit <count>", "how many", wholeNumber, 20)
    .action((queue: string, options: { prefix: string; limit: number }) =>
      running((context) => topKeys(context, { queue, ...options })),
    );
  one("jobs <queue> <key>", "the job that holds a key, and the jobs in line")
    .option("--limit <count>", "how many", wholeNumber, 100)
    .action((queue: string, key: string, options: { prefix: string; limit: number }) =>
      running((context) => jobsOfKey(context, { queue, key, ...options })),
    );
  one("explain <queue> <jobId>", "why a job waits; 1: the job does not exist")
    .option("--key <key>", OF_WHICH_KEY)
    .action((queue: string, jobId: string, options: { prefix: string; key?: string }) =>
      running((context) => explainJob(context, { queue, jobId, ...options })),
    );
  one("pause <queue> <key>", "start no more jobs of a key; 1: the key was paused before")
    .option("--reason <text>", "shown to other operators", "paused by an operator")
    .action((queue: string, key: string, options: { prefix: string; reason: string }) =>
      running((context) => pauseKey(context, { queue, key, ...options })),
    );
  one("drop <queue> <key>", "remove the jobs that wait for a key; 1: no job waited").action(
    (queue: string, key: string, options: { prefix: string }) =>
      running((context) => dropKey(context, { queue, key, ...options })),
  );
  one("retry <queue> <jobId>", "run a failed job again; 1: the job does not exist or has not failed")
    .option("--key <key>", OF_WHICH_KEY)
    .action((queue: string, jobId: string, options: { prefix: string; key?: string }) =>
      running((context) => retryJob(context, { queue, jobId, ...options })),
    );
  one("cancel <queue> [jobId]", "cancel a job, or with --key alone all jobs of a key; 1: no job was cancelled")
    .option("--key <key>", "the key of the job, or of all jobs to cancel")
    .option("--reason <text>", "the reason of the job's failure", "cancelled by an operator")
    .option("--remove", "remove jobs that do not run instead of failing them", false)
    .action(
      (
        queue: string,
        jobId: string | undefined,
        options: { prefix: string; key?: string; reason: string; remove: boolean },
      ) => running((context) => cancelJobs(context, { queue, jobId, key: undefined, ...options })),
    );
  one("policy <queue> [key]", "the options of the workers, or the limits of one key; 1: see the guide")
    .option("--concurrency <count>", "jobs of the key that may run at a time", wholeNumber)
    .option("--rate <max/ms>", "jobs that may start in a number of ms, such as 100/60000", rate)
    .option("--max-waiting <count>", "jobs that may wait", (text: string) => ({ max: wholeNumber(text) }))
    .option("--weight <count>", "jobs that may start at the key's turn", wholeNumber)
    .option("--remove", "return to the workers' options")
    .action((queue: string, key: string | undefined, options: { prefix: string } & PolicyChange) =>
      running(async (context) => {
        if (key !== undefined) return await policyOfKey(context, { queue, key, ...options });
        if (Object.keys(options).length > 1)
          throw new ConsoleFailure("A limit needs a key: keys policy <queue> <key>.");
        return await keyPolicy(context, { queue, ...options });
      }),
    );
  one("policies <queue>", "the keys with limits of their own")
    .option("--limit <count>", "how many", wholeNumber, 1_000)
    .action((queue: string, options: { prefix: string; limit: number }) =>
      running((context) => listPolicies(context, { queue, ...options })),
    );
  one("exclusion <queue> [mode]", "what exclusion would prevent; with on or watch, change it; 1: not exclusive")
    .option("--limit <count>", "how many keys to show, up to 100", listedCount, 10)
    .option("--force", "change even if plain workers are connected", false)
    .action((queue: string, mode: string | undefined, options: { prefix: string; limit: number; force: boolean }) =>
      running(async (context) => {
        const { limit, force, ...shared } = options;
        if (mode === undefined) return await showExclusion(context, { queue, limit, ...shared });
        if (mode === "on" || mode === "watch") return await setExclusion(context, { queue, mode, force, ...shared });
        throw new ConsoleFailure(`The mode must be on or watch, got ${mode}.`);
      }),
    );
  one("resume <queue> <key>", "end a pause, or the halt after a failed job; 1: the key was not paused").action(
    (queue: string, key: string, options: { prefix: string }) =>
      running((context) => resumeKey(context, { queue, key, ...options })),
  );
}

function addProblems(program: Command, running: Running): void {
  program
    .command("problems")
    .description("what needs attention, as on the live page; 1: something is critical or a warning")
    .option("--election <name>", "an election to look at, in addition to the elections that are found", collected, [])
    .option(
      "--queue <name>",
      "a queue to look at (default: the queues that are found on the first node)",
      collected,
      [],
    )
    .option("--prefix <prefix>", "BullMQ's prefix", "bull")
    .action((options: { queue: readonly string[]; prefix: string; election: readonly string[] }) =>
      running((context) => showProblems(context, options)),
    );
}

function addServe(program: Command, running: Running): void {
  program
    .command("serve")
    .description("show everything on a live page, until Ctrl-C")
    .option("--port <port>", "the port to listen on (default: a free port)", portNumber, 0)
    .option("--host <address>", "the address to listen on", "127.0.0.1")
    .option(
      "--allow-host <name>",
      "a host name under which browsers reach the page, in addition to the loopback names",
      collected,
      [],
    )
    .option("--actions", "allow the page to change something", false)
    .option("--election <name>", "an election to show, in addition to the elections that are found", collected, [])
    .option("--queue <name>", "a queue to show (default: the queues that are found on the first node)", collected, [])
    .option("--prefix <prefix>", "BullMQ's prefix", "bull")
    .action((options: ServeOptions) => running((context) => servePage(context, options)));
}

async function withContext(
  options: Shared,
  terminal: Terminal,
  run: (context: CommandContext) => Promise<void>,
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

/** Returns the addresses of the nodes and their source. An empty `REDIS_URL` counts as missing. */
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
  if (all.length === 0) throw new ConsoleFailure("--redis needs an address", "For example redis://redis-1:6379.");
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

function listedCount(text: string): number {
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
