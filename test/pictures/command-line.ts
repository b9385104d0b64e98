/** The answers of the command line, from its own commands, on nodes in virtual time. */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { memoryNodes, VirtualClock } from "@x/testing";
import type { CommandContext } from "../../packages/console/src/command.ts";
import { leaderStatus } from "../../packages/console/src/commands/leader.ts";
import { inspectLock } from "../../packages/console/src/commands/locks.ts";
import { scheduleHistory } from "../../packages/console/src/commands/schedules.ts";
import type { Connections } from "../../packages/console/src/connections.ts";
import { Output } from "../../packages/console/src/output.ts";

const ELECTION = "billing";
const SCHEDULE = "fetch-statements";

/** Returns the text of a terminal after several commands, with its color codes. */
export async function commandLine(): Promise<string> {
  const clock = new VirtualClock();
  const nodes = memoryNodes(3, { clock, latency: 1 });
  let clients = 0;
  const connected = (name: string): Redlock => {
    const process = clock.process(name);
    clients += 1;
    const digits = String(clients).padStart(12, "0");
    let tokens = 0;
    const random = { token: () => digits + String((tokens += 1)).padStart(28, "0"), fraction: () => 0.5 };
    return new Redlock(memoryNodes(nodes, { clock: process, latency: 1 }), { clock: process, name, random });
  };
  const [holder, waiter, leader, operator] = [
    "billing-api host-7 4711",
    "billing-api host-8 95",
    "billing-worker host-7 81",
    "operator",
  ].map(connected) as [Redlock, Redlock, Redlock, Redlock];

  const election = new LeaderElection(leader, { name: ELECTION, id: "host-7", value: "10.0.0.7:8080" });
  const scheduler = new LeaderScheduler({ election });
  let runs = 0;
  scheduler.every(SCHEDULE, 10_000, async () => {
    runs += 1;
    if (runs === 2) throw new Error("the bank answers 503");
  });
  scheduler.start();
  await clock.advance(41_000);
  await clock.until(holder.acquire("account:42", { autoExtend: true }));
  const waiting = waiter.acquire("account:42", { timeout: 60_000 });
  waiting.catch(() => undefined);
  await clock.advance(2_500);

  let text = "";
  const ends: (() => Promise<unknown>)[] = [];
  const command = {
    connections: {
      redlock: async () => operator,
      defer: (end: () => Promise<unknown>) => void ends.push(end),
    } as unknown as Connections,
    output: new Output({ isJson: false, hasColour: true, write: (written) => void (text += written) }),
    terminal: { signal: new AbortController().signal },
    watch: undefined,
    isConfirmed: false,
  } as unknown as CommandContext;
  const ask = async (line: string, answer: Promise<unknown>): Promise<void> => {
    text += `$ npx @x/console ${line}\n`;
    await clock.until(answer);
    text += "\n";
  };
  await ask("locks inspect account:42", inspectLock(command, "account:42"));
  await ask(`leader status ${ELECTION}`, leaderStatus(command, ELECTION));
  await ask(
    `schedules history ${ELECTION} ${SCHEDULE}`,
    scheduleHistory(command, { election: ELECTION, schedule: SCHEDULE, limit: 20 }),
  );
  const stopping = Promise.all([scheduler.stop({ drainTimeout: 0 }), ...ends.map((end) => end())]);
  await clock.until(stopping);
  await clock.until(Promise.all([holder.close(), waiter.close(), leader.close(), operator.close()]));
  return text;
}
