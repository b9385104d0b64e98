import { LeaderElection, type LeaderInfo } from "@x/leader";
import { messageOf } from "@x/redlock-core/kit";
import { type CommandContext, confirmed, type IsGood, looking } from "../command.ts";
import { durationText, type Output, printable } from "../output.ts";

/** Opens an election that only observes: this process is not a candidate. */
export async function electionOf({ connections }: CommandContext, name: string): Promise<LeaderElection> {
  const election = new LeaderElection(await connections.redlock(), { name });
  connections.defer(() => election.stop({ drainTimeout: 0 }));
  return election;
}

function show(output: Output, name: string, leader: LeaderInfo | null): void {
  output.answer(leader, () => {
    if (leader === null) output.line(`${name}: nobody leads`, "warn");
    else {
      output.line(`${name}: ${leader.id} leads`, "good");
      output.table(
        ["term", "since", "lease ends", "value"],
        [
          [
            String(leader.term),
            leader.acquiredAt.toISOString(),
            `in ${durationText(leader.expiresInMs)} unless it is renewed`,
            leader.value ?? "",
          ],
        ],
      );
    }
  });
}

/** Shows the leader. The answer is good if the election has a leader. */
export async function leaderStatus(context: CommandContext, name: string): Promise<IsGood> {
  const election = await electionOf(context, name);
  return await looking(context, async () => {
    const leader = await election.leader();
    show(context.output, name, leader);
    return leader !== null;
  });
}

/** Writes each change of the leader until the command is ended. Writes an error once per change. */
export async function watchLeader(context: CommandContext, name: string): Promise<IsGood> {
  const { terminal, output } = context;
  const election = await electionOf(context, name);
  let isTold = false;
  election.on("error", (error) => {
    if (!isTold) terminal.writeError(`${printable(messageOf(error))}\n`);
    isTold = true;
  });
  for await (const leader of election.observe({ signal: terminal.signal })) {
    isTold = false;
    show(output, name, leader);
  }
  return true;
}

/** Asks the leader to drain and hand over. The answer is good if the leader was asked. */
export async function resignLeader(context: CommandContext, name: string): Promise<IsGood> {
  const { output } = context;
  const election = await electionOf(context, name);
  const leader = await election.leader();
  if (leader === null) {
    output.answer({ asked: false }, () => output.line(`${name}: nobody leads`, "warn"));
    return false;
  }
  if (!(await confirmed(context, `Ask ${leader.id} to resign?`))) return false;
  const isAsked = await election.requestResign();
  output.answer({ asked: isAsked, id: leader.id }, () => {
    output.line(isAsked ? `${leader.id} was asked to resign` : `${name}: nobody leads`, isAsked ? "good" : "warn");
  });
  return isAsked;
}
