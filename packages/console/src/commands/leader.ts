import { LeaderElection, type LeaderInfo } from "@x/leader";
import { messageOf } from "@x/redlock-core/kit";
import { type Command, confirmed, type IsGood, looking } from "../command.ts";
import { durationText, type Output, printable } from "../output.ts";

/** Opens an election that only observes: this process is not a candidate. */
export async function electionOf({ connections }: Command, name: string): Promise<LeaderElection> {
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
export async function leaderStatus(command: Command, name: string): Promise<IsGood> {
  const election = await electionOf(command, name);
  return await looking(command, async () => {
    const leader = await election.leader();
    show(command.output, name, leader);
    return leader !== null;
  });
}

/** Writes each change of the leader until the command is ended. Writes an error once per change. */
export async function watchLeader(command: Command, name: string): Promise<IsGood> {
  const { terminal, output } = command;
  const election = await electionOf(command, name);
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
export async function resignLeader(command: Command, name: string): Promise<IsGood> {
  const { output } = command;
  const election = await electionOf(command, name);
  const leader = await election.leader();
  if (leader === null) {
    output.answer({ asked: false }, () => output.line(`${name}: nobody leads`, "warn"));
    return false;
  }
  if (!(await confirmed(command, `Ask ${leader.id} to resign?`))) return false;
  const isAsked = await election.requestResign();
  output.answer({ asked: isAsked, id: leader.id }, () => {
    output.line(isAsked ? `${leader.id} was asked to resign` : `${name}: nobody leads`, isAsked ? "good" : "warn");
  });
  return isAsked;
}
