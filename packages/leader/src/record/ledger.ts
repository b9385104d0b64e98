/**
 * The ledger contains the record of each term and the requests to resign. The lock nodes store the ledger next to the
 * lock, and a majority decides. The ledger does not decide which process leads: only the lock does.
 *
 * A write that resolves with `written` has reached a quorum. Every later read of a quorum sees the record, as long as
 * the nodes keep their data. The leader repeats its record once per lease. A node that saw a newer term refuses the
 * record of an older term.
 *
 * Each node stores a note of the holder (`claimOf`) together with its grant of the lock, so a leader need not wait for
 * its record. A node may have granted an attempt that reached no quorum. A reader therefore counts grants, and accepts
 * a leader only if a quorum holds the leader's token.
 *
 * The record of the term follows the grant. The history and the fence against older terms need the record. Only a
 * leader writes a record.
 */
import { type Clock, type NodeScript, QuorumUnreachableError, type Redlock, type Vote } from "@x/redlock-core";
import { DAY_MS } from "@x/redlock-core/kit";
import { type NodeReply, protocolOf, type ScriptOptions } from "@x/redlock-core/protocol";
import { type Held, heldNow, type NodeRecord, parseView, type TermRecord } from "../rules/record.ts";
import { READ_RECORD } from "./scripts/read-record.lua.ts";
import { REQUEST_RESIGN } from "./scripts/request-resign.lua.ts";
import { WRITE_RECORD } from "./scripts/write-record.lua.ts";

/** The nodes keep all records this long after the last renewal of the last leader. */
const KEEP_MS = 7 * DAY_MS;
/**
 * Reads that began in this turn of the event loop. A process may have hundreds of observers of one election, which
 * share one read.
 */
const looks = new WeakMap<Redlock, Map<string, Promise<readonly NodeRecord[]>>>();
/** The number of terms that an observer can miss and still receive later. */
const KEPT_TERMS = 1_000;

export interface Written {
  /** `stale` if a node has seen a newer term. The term of this record is then over. */
  readonly outcome: "written" | "stale";
  /** Whether an operator has asked this term to resign. */
  readonly isToResign: boolean;
}

export interface RecordToWrite {
  readonly record: TermRecord;
  readonly revision: number;
  readonly token: string;
  readonly ended: boolean;
}

export class Ledger {
  readonly quorum: number;
  readonly channel: string;
  readonly election: string;
  readonly clock: Clock;
  readonly nodeCount: number;
  readonly #redlock: Redlock;
  readonly #resource: string;

  constructor(redlock: Redlock, election: string, resource: string) {
    this.#redlock = redlock;
    this.#resource = resource;
    this.election = election;
    this.quorum = redlock.quorum;
    this.nodeCount = redlock.nodeCount;
    this.clock = protocolOf(redlock).clock;
    this.channel = protocolOf(redlock).keys.channel(resource, "news");
  }

  key(name: string): string {
    return protocolOf(this.#redlock).keys.sideKey(this.#resource, name);
  }

  /**
   * Reads a quorum of nodes, or more nodes until `enough` returns true.
   * @throws QuorumUnreachableError
   */
  async read(
    afterTerm: number,
    enough: (views: readonly NodeRecord[]) => boolean = () => true,
  ): Promise<readonly NodeRecord[]> {
    const lockKey = protocolOf(this.#redlock).keys.lockKey(this.#resource);
    const keys = [lockKey, this.key("leader"), this.key("terms"), this.key("note")];
    const args = [String(afterTerm), String(KEPT_TERMS)];
    return this.ask("reading the leader's record", READ_RECORD, keys, args, parseView, enough);
  }

  /**
   * Reads until a leader is seen. Equal reads in one turn of the event loop share one request.
   * @throws QuorumUnreachableError
   */
  look(afterTerm: number): Promise<readonly NodeRecord[]> {
    const shared = looks.get(this.#redlock) ?? new Map<string, Promise<readonly NodeRecord[]>>();
    looks.set(this.#redlock, shared);
    const what = `${afterTerm} ${this.#resource}`;
    const known = shared.get(what);
    if (known !== undefined) return known;
    const looking = this.read(afterTerm, (views) => heldNow(views, this.quorum) !== undefined);
    shared.set(what, looking);
    // News of a later turn of the event loop may be younger than the answer.
    this.clock.defer(() => shared.delete(what));
    return looking;
  }

  /**
   * Asks a quorum of the nodes for the current leader.
   * @throws QuorumUnreachableError
   */
  async held(): Promise<Held | undefined> {
    return heldNow(await this.look(Number.MAX_SAFE_INTEGER), this.quorum);
  }

  /**
   * Writes the record of a term.
   * @throws QuorumUnreachableError if no quorum stored the record and no node knows a newer term
   */
  async write(toWrite: RecordToWrite): Promise<Written> {
    const { record, revision, token, ended } = toWrite;
    const keys = [this.key("leader"), this.key("terms"), this.key("request")];
    const args = [
      String(record.term),
      String(revision),
      token,
      JSON.stringify(record),
      ended ? "1" : "0",
      String(KEEP_MS),
      String(KEPT_TERMS),
      this.channel,
    ];
    const replies = await this.ask("writing the leader's record", WRITE_RECORD, keys, args, parseWritten);
    if (replies.some((reply) => reply.outcome === "stale")) return { outcome: "stale", isToResign: false };
    return { outcome: "written", isToResign: replies.some((reply) => reply.isToResign) };
  }

  /**
   * Asks the leader of a term to resign.
   * @throws QuorumUnreachableError
   */
  async requestResign(term: number, keepMs: number): Promise<void> {
    const args = [String(term), String(keepMs), this.channel];
    await this.ask("requesting a resignation", REQUEST_RESIGN, [this.key("request")], args, () => true);
  }

  /** Calls `listener` with each message of any node, so up to once per node for each change. */
  listen(listener: (news: string) => void): Promise<() => void> {
    return protocolOf(this.#redlock).subscribe(this.channel, (message) => listener(message));
  }

  /**
   * Runs a script on every node. Resolves with the answers as soon as a quorum has answered and `enough` returns true,
   * or when all nodes have answered or failed.
   * @throws QuorumUnreachableError if fewer than a quorum answered
   */
  async ask<Answer>(
    what: string,
    script: NodeScript,
    keys: readonly string[],
    args: readonly string[],
    parse: (value: unknown, node: string) => Answer,
    enough: (answers: readonly Answer[]) => boolean = () => true,
  ): Promise<readonly Answer[]> {
    // `enough` is called with each reply for all replies so far, so each reply is parsed once.
    const parsed = new Map<NodeReply, Answer>();
    const answerOf = (reply: NodeReply & { readonly ok: true }): Answer => {
      const answer = parsed.get(reply) ?? parse(reply.value, reply.node);
      parsed.set(reply, answer);
      return answer;
    };
    const answersOf = (replies: readonly NodeReply[]): readonly Answer[] =>
      replies.flatMap((reply) => (reply.ok ? [answerOf(reply)] : []));
    const options: ScriptOptions = {
      enough: (soFar) => {
        const answers = answersOf(soFar);
        return answers.length >= this.quorum && enough(answers);
      },
    };
    const replies = await protocolOf(this.#redlock).run(script, { keys, args }, options);
    const answers = answersOf(replies);
    if (answers.length >= this.quorum) return answers;
    throw this.unreachable(what, replies.map(voteOf));
  }

  /**
   * Returns the error for a request that fewer than a quorum of the nodes answered. A `granted` vote stands for an
   * answer.
   */
  unreachable(what: string, votes: readonly Vote[]): QuorumUnreachableError {
    return new QuorumUnreachableError({
      asked: `election "${this.election}": ${what}`,
      resources: [this.#resource],
      votes,
      nodeCount: this.nodeCount,
      quorum: this.quorum,
      attempts: 1,
      elapsedMs: Math.max(0, ...votes.map(({ tookMs }) => tookMs)),
    });
  }
}

function voteOf(reply: NodeReply): Vote {
  const facts = { node: reply.node, tookMs: reply.tookMs };
  return reply.ok ? { ...facts, vote: "granted" } : { ...facts, vote: "failed", error: reply.error.message };
}

function parseWritten(value: unknown): Written {
  const [outcome, isToResign] = Array.isArray(value) ? value.map(String) : [];
  return { outcome: outcome === "stale" ? outcome : "written", isToResign: isToResign === "1" };
}
