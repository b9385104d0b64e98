/** `check()` finds mistakes in a deployment before they cost a lock. */
import { readClock } from "../kit/clock.ts";
import { quote } from "../kit/schema/show.ts";
import { inTime } from "../kit/signals.ts";
import type { Engine } from "../lock/engine.ts";
import { type ListReply, listsEverywhere, type NodeReply, runEverywhere, untilNodes } from "../rounds/run.ts";
import { NODE_KEYS, PROBE_KEY, probeKeysOf } from "../rules/keys.ts";
import { quarantineLeftMs } from "../rules/quarantine.ts";
import { median, quorumOf } from "../rules/quorum.ts";
import { readReply } from "../rules/script.ts";
import { describeServer, isTested, readInfo, serverOf } from "../rules/server.ts";
import { CHECK_REPLY, checkScript, rightsScript } from "../scripts/check.lua.ts";

export type FindingCode =
  | "SAME_SERVER"
  | "REPLICA"
  | "HAS_REPLICAS"
  | "CLUSTER_MEMBER"
  | "EVICTION"
  | "REFUSES_WRITES"
  | "NO_LUA"
  | "NOT_ATOMIC"
  | "NO_RUN_ID"
  | "OTHER_SERVER"
  | "EVEN_NODES"
  | "NO_PERSISTENCE"
  | "NODE_CLOCK"
  | "CLIENT_CLOCK"
  | "OTHER_QUARANTINE"
  | "QUARANTINED"
  | "UNREACHABLE"
  | "REFUSED"
  | "OLD_VERSION";

/** A single result of a check. Findings have the same shape in every package. */
export interface Finding<Code extends string = FindingCode> {
  readonly code: Code;
  /**
   * How serious the finding is:
   * - `error`: a promise can be broken.
   * - `warning`: something is worse than necessary, or may go wrong under the conditions named in the message.
   * - `info`: something is useful to know.
   */
  readonly severity: "error" | "warning" | "info";
  /**
   * Names of the nodes, or of other things that findings with this code are about. Empty if the finding is about all of
   * them.
   */
  readonly subjects: readonly string[];
  readonly message: string;
}

interface CheckedNode {
  readonly node: string;
  readonly info: ReadonlyMap<string, string>;
  readonly offsetMs: number;
  readonly quarantineLeftMs: number;
  /** Quarantine that a client last reported to the node, before this check reported its own. Undefined if none did. */
  readonly knownQuarantineMs: number | undefined;
  /** Error of Redis for a write. Empty if the write succeeded. */
  readonly writeError: string;
  /** The server's setting `appendfsync`. Undefined if unknown. */
  readonly appendfsync: string | undefined;
}

/**
 * Clocks with a larger difference weaken the order of waiters and, after a loss of data, also the order of fencing
 * tokens.
 */
const CLOCK_TOLERANCE_MS = 500;

/**
 * Time for the first connection. It is longer than `nodeTimeout`, because a check is often the first call of a process
 * that is still busy starting. A SYN that is sent again after one second and after three has time to arrive.
 */
const FIRST_CONNECTION_MS = 3_500;

export async function check(engine: Engine): Promise<readonly Finding[]> {
  const { quarantine, nodeTimeout } = engine.options;
  await untilConnected(engine);
  const asked = readClock(engine.clock);
  const [replies, rights] = await Promise.all([
    listsEverywhere(engine, checkScript, {
      keys: [PROBE_KEY, ...(quarantine ? [NODE_KEYS.hash] : [])],
      args: quarantine ? [String(engine.quarantineMs)] : [],
      timeoutMs: nodeTimeout,
    }),
    runEverywhere(engine, rightsScript, {
      keys: probeKeysOf(engine.targets.keyPrefix),
      args: [],
      timeoutMs: nodeTimeout,
    }),
  ]);
  const facts = await Promise.all(
    replies.flatMap((reply, index) => {
      if (!reply.ok) return [];
      const known = factsOf(engine, reply.node, reply, asked.wallMs);
      const isAsked = known.info.get("aof_enabled") === "1" && !quarantine;
      const setting = isAsked ? settingOf(engine, index, "appendfsync") : Promise.resolve(undefined);
      return [setting.then((appendfsync) => ({ ...known, appendfsync }))];
    }),
  );
  return [
    ...failedNodes(replies),
    ...withoutRights(engine, replies, rights),
    ...sameServer(facts),
    ...facts.flatMap((node) => nodeFindings(engine, node)),
    ...clocks(facts),
    ...otherQuarantine(facts, engine.quarantineMs),
    ...evenNodes(engine),
  ];
}

/**
 * Waits until each node is connected or down, for at most `FIRST_CONNECTION_MS`. The time starts in the next turn of
 * the event loop, because no event can arrive before, however long the caller's code runs. Never rejects.
 */
async function untilConnected({ nodes, clock }: Engine): Promise<void> {
  let cancel: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    const begin = (): void => {
      cancel = clock.schedule(FIRST_CONNECTION_MS, resolve, { keepAlive: true });
    };
    cancel = clock.schedule(0, begin, { keepAlive: true });
  });
  await untilNodes(nodes, () => nodes.every(({ state }) => state !== "connecting"), over);
  cancel();
}

/**
 * Resolves with a setting of a node, or with undefined if no answer arrives within `nodeTimeout`. A custom adapter may
 * throw where it should reject.
 */
async function settingOf({ clock, options, nodes }: Engine, index: number, name: string): Promise<string | undefined> {
  try {
    const answer = Promise.resolve(nodes[index]?.config?.(name));
    return await inTime(clock, answer, { timeoutMs: options.nodeTimeout, otherwise: "no answer", keepAlive: true });
  } catch {
    return undefined;
  }
}

function factsOf(
  engine: Engine,
  node: string,
  reply: ListReply & { ok: true },
  askedWallMs: number,
): Omit<CheckedNode, "appendfsync"> {
  const {
    info: text,
    seconds,
    micros,
    knownRunId,
    since,
    knownQuarantine,
    writeError,
  } = readReply(CHECK_REPLY, reply.value);
  const info = readInfo(text);
  const nowUs = Number(seconds) * 1_000_000 + Number(micros);
  return {
    node,
    info,
    offsetMs: nowUs / 1_000 - (askedWallMs + reply.tookMs / 2),
    quarantineLeftMs: quarantineLeftMs(engine.quarantineMs, {
      nowUs,
      runId: info.get("run_id"),
      knownRunId,
      sinceUs: Number(since),
    }),
    knownQuarantineMs: knownQuarantine === "" ? undefined : Number(knownQuarantine),
    writeError,
  };
}

/**
 * Finds the nodes that gave no answer, or answered with an error. The severity is `error` if the other nodes are fewer
 * than a quorum, because the failed nodes probably refuse locks in the same way.
 */
function failedNodes(replies: readonly NodeReply[]): readonly Finding[] {
  const failed = replies.flatMap((reply) => (reply.ok ? [] : [failureOf(reply)]));
  const severity = replies.length - failed.length < quorumOf(replies.length) ? "error" : "warning";
  const finding = (code: FindingCode, what: string): readonly Finding[] => {
    const concerned = failed.filter((failure) => failure.code === code);
    if (concerned.length === 0) return [];
    return [{ code, severity, ...aboutNodes(concerned, what) }];
  };
  return [
    ...failed.filter(({ code }) => code === "CLUSTER_MEMBER").map(({ node }) => clusterMember(node)),
    ...finding("NO_LUA", "cannot make locks"),
    ...finding("NOT_ATOMIC", "cannot make locks"),
    ...finding("UNREACHABLE", "no answer"),
    ...finding("REFUSED", "answered with an error"),
  ];
}

interface Failure {
  readonly node: string;
  readonly reason: string;
  /** First word of Redis' answer. Undefined for an error of the connection. */
  readonly errorWord: string | undefined;
  readonly code: FindingCode;
}

const CODES: Readonly<Record<string, FindingCode>> = {
  MOVED: "CLUSTER_MEMBER",
  NO_LUA: "NO_LUA",
  NOT_ATOMIC: "NOT_ATOMIC",
};

/**
 * Distinguishes an error answer of Redis from an error of the connection. By convention an answer begins with a word in
 * capitals (NOPERM, LOADING, ERR). Of the other errors only the adapters' own refusals of a server do.
 */
function failureOf({ node, error }: NodeReply & { ok: false }): Failure {
  const [, errorWord] = /^([A-Z_]+) /.exec(error.message) ?? [];
  const code = errorWord === undefined ? "UNREACHABLE" : (CODES[errorWord] ?? "REFUSED");
  return { node, reason: error.message, errorWord, code };
}

function aboutNodes(failed: readonly Failure[], what: string): Pick<Finding, "subjects" | "message"> {
  const reasons = failed.map(({ node, reason }) => `${node}: ${reason}`).join("; ");
  return { subjects: failed.map(({ node }) => node), message: `${what}: ${reasons}` };
}

/** Finds the nodes that answered the check but refuse access to the keys of locks. */
function withoutRights(
  { targets, quorum }: Engine,
  replies: readonly NodeReply[],
  rights: readonly NodeReply[],
): readonly Finding[] {
  const refused = rights
    .flatMap((reply, at) => (!reply.ok && replies[at]?.ok === true ? [failureOf(reply)] : []))
    .filter(({ errorWord }) => errorWord === "NOPERM");
  if (refused.length === 0) return [];
  const severity = rights.length - refused.length < quorum ? "error" : "warning";
  const what = `no right to the keys of locks and their lines, with the keyPrefix ${quote(targets.keyPrefix)}`;
  return [{ code: "REFUSED", severity, ...aboutNodes(refused, what) }];
}

function clusterMember(node: string): Finding {
  const message = `${node} is a member of a Redis Cluster: pass the Cluster client as the only node instead`;
  return { code: "CLUSTER_MEMBER", severity: "error", subjects: [node], message };
}

function sameServer(facts: readonly CheckedNode[]): readonly Finding[] {
  const byRunId = new Map<string, string[]>();
  for (const { node, info } of facts) {
    const runId = info.get("run_id") ?? node;
    byRunId.set(runId, [...(byRunId.get(runId) ?? []), node]);
  }
  return [...byRunId.values()]
    .filter((nodes) => nodes.length > 1)
    .map((nodes) => ({
      code: "SAME_SERVER",
      severity: "error",
      subjects: nodes,
      message: `${nodes.join(" and ")} are one server (one run_id): it votes more than once, so a minority makes a quorum`,
    }));
}

function nodeFindings(
  engine: Engine,
  { node, info, quarantineLeftMs, writeError, appendfsync }: CheckedNode,
): readonly Finding[] {
  const findings: Finding[] = [];
  const server = serverOf(info);
  const name = server === undefined ? node : `${node} (${describeServer(server)})`;
  const add = (code: FindingCode, severity: Finding["severity"], message: string): void => {
    findings.push({ code, severity, subjects: [node], message: `${name} ${message}` });
  };
  const isAlone = engine.nodes.length === 1;
  if (server !== undefined && !isTested(server))
    add("OTHER_SERVER", "info", 'is neither Redis nor Valkey: the page "Which Redis" says what works on it');
  if (!info.has("run_id") && server !== undefined) {
    if (engine.options.quarantine) add("NO_RUN_ID", "error", `grants no lock with quarantine, ${NO_RUN_ID}`);
    else add("NO_RUN_ID", "warning", `cannot be used for schedules, or be told from the other nodes, ${NO_RUN_ID}`);
  }
  if (info.get("role") === "slave")
    add("REPLICA", "error", "is a replica: it refuses writes, and its data may be stale");
  else if (writeError !== "") add("REFUSES_WRITES", "error", `refuses writes, so it cannot grant locks: ${writeError}`);
  if (Number(info.get("connected_slaves") ?? 0) > 0) {
    add(
      "HAS_REPLICAS",
      "warning",
      "has replicas: a failover to one that lags forgets locks (replication is asynchronous)",
    );
  }
  if (info.get("cluster_enabled") === "1" && !engine.isCluster) {
    findings.push(clusterMember(node));
  }
  const policy = info.get("maxmemory_policy") ?? "noeviction";
  if (Number(info.get("maxmemory") ?? 0) > 0 && policy !== "noeviction") {
    add("EVICTION", "error", `may evict lock keys (maxmemory-policy ${policy}): set noeviction`);
  }
  if (!engine.options.quarantine) {
    const noQuarantine = `and ${isAlone ? "one node" : "this Redlock"} has no quarantine`;
    if (info.get("aof_enabled") === "0")
      add("NO_PERSISTENCE", "warning", `forgets its locks when it restarts (no AOF), ${noQuarantine}`);
    else if (appendfsync === "no") {
      add(
        "NO_PERSISTENCE",
        "warning",
        `forgets the locks of up to half a minute when its machine stops (appendfsync no), ${noQuarantine}: set everysec or always`,
      );
    }
  }
  const version = info.get("redis_version") ?? "7.0";
  if (isOld(version)) add("OLD_VERSION", "error", "is too old: the scripts need Redis 6.2 or later (SET with GET)");
  if (quarantineLeftMs > 0) {
    add("QUARANTINED", "warning", `has restarted or lost its data: it does not vote for ${quarantineLeftMs} ms more`);
  }
  return findings;
}

const NO_RUN_ID = "because its INFO has no run_id, by which a restart is noticed";

function isOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major < 6 || (major === 6 && minor < 2);
}

function clocks(facts: readonly CheckedNode[]): readonly Finding[] {
  if (facts.length === 0) return [];
  const middle = median(facts.map(({ offsetMs }) => offsetMs));
  const findings: Finding[] = facts
    .filter(({ offsetMs }) => Math.abs(offsetMs - middle) > CLOCK_TOLERANCE_MS)
    .map(({ node, offsetMs }) => ({
      code: "NODE_CLOCK",
      severity: "warning",
      subjects: [node],
      message: `${node}'s clock is ${Math.round(offsetMs - middle)} ms off the other nodes'`,
    }));
  if (Math.abs(middle) > CLOCK_TOLERANCE_MS) {
    findings.push({
      code: "CLIENT_CLOCK",
      severity: "warning",
      subjects: facts.map(({ node }) => node),
      message: `this process's clock is ${Math.round(-middle)} ms off the nodes'`,
    });
  }
  return findings;
}

function otherQuarantine(facts: readonly CheckedNode[], wholeMs: number): readonly Finding[] {
  const others = facts.filter(({ knownQuarantineMs: ms }) => ms !== undefined && ms !== wholeMs);
  if (others.length === 0) return [];
  const reported = others.map(({ node, knownQuarantineMs: ms }) => `${node}: ${ms} ms`).join(", ");
  return [
    {
      code: "OTHER_QUARANTINE",
      severity: "error",
      subjects: others.map(({ node }) => node),
      message: `another client has reported another quarantine (${reported}) than this client's ${wholeMs} ms: maxTtl and driftFactor must be the same for all clients, or a node may vote that has forgotten a valid lock`,
    },
  ];
}

function evenNodes(engine: Engine): readonly Finding[] {
  const nodeCount = engine.nodes.length;
  if (nodeCount % 2 === 1) return [];
  return [
    {
      code: "EVEN_NODES",
      severity: "info",
      subjects: [],
      message: `${nodeCount} nodes tolerate no more failures than ${nodeCount - 1}: use an odd number`,
    },
  ];
}
