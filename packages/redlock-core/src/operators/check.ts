/** `check()` finds what is wrong with a deployment before it loses a lock. */
import { readClock } from "../kit/clock.ts";
import { quote } from "../kit/schema/show.ts";
import { inTime } from "../kit/signals.ts";
import type { Engine } from "../rounds/engine.ts";
import { type ListReply, listsEverywhere, type NodeReply, runEverywhere, untilSettled } from "../rounds/run.ts";
import { NODE_KEYS, PROBE_KEY, probeKeysOf } from "../rules/keys.ts";
import { quarantineLeftMs } from "../rules/quarantine.ts";
import { median, quorumOf } from "../rules/quorum.ts";
import { readReply } from "../rules/script.ts";
import { CHECK_REPLY, checkScript, rightsScript } from "../scripts/check.lua.ts";

export type FindingCode =
  | "SAME_SERVER"
  | "REPLICA"
  | "HAS_REPLICAS"
  | "CLUSTER_MEMBER"
  | "EVICTION"
  | "REFUSES_WRITES"
  | "NO_LUA"
  | "EVEN_NODES"
  | "NO_PERSISTENCE"
  | "NODE_CLOCK"
  | "CLIENT_CLOCK"
  | "OTHER_QUARANTINE"
  | "QUARANTINED"
  | "UNREACHABLE"
  | "REFUSED"
  | "OLD_VERSION";

/** A finding is one thing that a check has found. It has the same shape in every package. */
export interface Finding<Code extends string = FindingCode> {
  readonly code: Code;
  /**
   * How serious the finding is:
   * - `error`: a promise can be broken.
   * - `warning`: something is worse than it could be, or may be wrong under the conditions that the message names.
   * - `info`: something is good to know.
   */
  readonly severity: "error" | "warning" | "info";
  /**
   * The names of what the finding is about: nodes, or what else the code speaks of. The list is empty if the finding
   * is about all of them.
   */
  readonly subjects: readonly string[];
  readonly message: string;
}

interface Facts {
  readonly node: string;
  readonly info: ReadonlyMap<string, string>;
  readonly offsetMs: number;
  readonly quarantineLeftMs: number;
  /** The quarantine that this or another client told the node last; undefined if none did. */
  readonly toldQuarantineMs: number | undefined;
  /** Redis' error for a write; empty if there was none. */
  readonly writeError: string;
  /** The server's setting of this name; undefined if it is not known. */
  readonly appendfsync: string | undefined;
}

/**
 * Clocks that are further apart than this weaken the order of waiters. After a loss of data they also weaken the
 * order of fencing tokens.
 */
const CLOCK_TOLERANCE_MS = 500;

/**
 * A check is often the first call of a process that is still busy starting. So a first connection has more time than
 * `nodeTimeout`. It is enough for a SYN that is sent again after a second and after three.
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
    runEverywhere(engine, rightsScript, { keys: probeKeysOf(engine.keyPrefix), args: [], timeoutMs: nodeTimeout }),
  ]);
  const facts = await Promise.all(
    replies.flatMap((reply, index) => {
      if (!reply.ok) return [];
      const told = factsOf(engine, reply.node, reply, asked.wallMs);
      const isAsked = told.info.get("aof_enabled") === "1" && !quarantine;
      const setting = isAsked ? settingOf(engine, index, "appendfsync") : Promise.resolve(undefined);
      return [setting.then((appendfsync) => ({ ...told, appendfsync }))];
    }),
  );
  return [
    ...unchecked(replies),
    ...withoutRights(engine, replies, rights),
    ...sameServer(facts),
    ...facts.flatMap((node) => nodeFindings(engine, node)),
    ...clocks(facts),
    ...otherQuarantine(facts, engine.quarantineMs),
    ...evenNodes(engine),
  ];
}

/**
 * Waits until each node is connected or down, for `FIRST_CONNECTION_MS` at most. That counts from the next turn of the
 * event loop: before it nothing can be heard, however long the caller's code runs. Never rejects.
 */
async function untilConnected({ nodes, clock }: Engine): Promise<void> {
  let cancel: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    const begin = (): void => {
      cancel = clock.schedule(FIRST_CONNECTION_MS, resolve, { keepAlive: true });
    };
    cancel = clock.schedule(0, begin, { keepAlive: true });
  });
  const connecting = nodes.filter(({ state }) => state === "connecting");
  await Promise.allSettled(connecting.map((node) => untilSettled(node, over)));
  cancel();
}

/**
 * Resolves with a setting of a node, or with undefined if it is not told within `nodeTimeout`. An adapter of the user's
 * own may throw where it should reject.
 */
async function settingOf({ clock, options, nodes }: Engine, index: number, name: string): Promise<string | undefined> {
  try {
    const told = Promise.resolve(nodes[index]?.config?.(name));
    return await inTime(clock, told, { timeoutMs: options.nodeTimeout, otherwise: "no answer", keepAlive: true });
  } catch {
    return undefined;
  }
}

function factsOf(
  engine: Engine,
  node: string,
  reply: ListReply & { ok: true },
  askedWallMs: number,
): Omit<Facts, "appendfsync"> {
  const {
    info: text,
    seconds,
    micros,
    knownRunId,
    since,
    knownQuarantine,
    writeError,
  } = readReply(CHECK_REPLY, reply.value);
  const info = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon > 0) info.set(line.slice(0, colon), line.slice(colon + 1));
  }
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
    toldQuarantineMs: knownQuarantine === "" ? undefined : Number(knownQuarantine),
    writeError,
  };
}

/**
 * Finds the nodes that were asked and gave no answer. It is an error if fewer than a quorum remain, because they may
 * refuse locks in the same way.
 */
function unchecked(replies: readonly NodeReply[]): readonly Finding[] {
  const failed = replies.flatMap((reply) => (reply.ok ? [] : [failureOf(reply)]));
  const severity = replies.length - failed.length < quorumOf(replies.length) ? "error" : "warning";
  const finding = (code: FindingCode, what: string): readonly Finding[] => {
    const of = failed.filter((failure) => failure.code === code);
    if (of.length === 0) return [];
    return [{ code, severity, ...told(of, what) }];
  };
  return [
    ...failed.filter(({ code }) => code === "CLUSTER_MEMBER").map(({ node }) => clusterMember(node)),
    ...finding("NO_LUA", "cannot make locks"),
    ...finding("UNREACHABLE", "no answer"),
    ...finding("REFUSED", "answered with an error"),
  ];
}

interface Failure {
  readonly node: string;
  readonly reason: string;
  /** The word that Redis' answer begins with; undefined for an error of the connection. */
  readonly told: string | undefined;
  readonly code: FindingCode;
}

const CODES: Readonly<Record<string, FindingCode>> = { MOVED: "CLUSTER_MEMBER", NO_LUA: "NO_LUA" };

/**
 * Tells an error that Redis answered from one of the connection. By convention an answer begins with a word in
 * capitals (NOPERM, LOADING, ERR); besides those only NO_LUA does.
 */
function failureOf({ node, error }: NodeReply & { ok: false }): Failure {
  const [, told] = /^([A-Z_]+) /.exec(error.message) ?? [];
  return { node, reason: error.message, told, code: told === undefined ? "UNREACHABLE" : (CODES[told] ?? "REFUSED") };
}

function told(failed: readonly Failure[], what: string): Pick<Finding, "subjects" | "message"> {
  const reasons = failed.map(({ node, reason }) => `${node}: ${reason}`).join("; ");
  return { subjects: failed.map(({ node }) => node), message: `${what}: ${reasons}` };
}

/** Finds the nodes that answered the check but refuse the keys of locks. */
function withoutRights(
  { keyPrefix, quorum }: Engine,
  replies: readonly NodeReply[],
  rights: readonly NodeReply[],
): readonly Finding[] {
  const refused = rights
    .flatMap((reply, at) => (!reply.ok && replies[at]?.ok === true ? [failureOf(reply)] : []))
    .filter(({ told }) => told === "NOPERM");
  if (refused.length === 0) return [];
  const severity = rights.length - refused.length < quorum ? "error" : "warning";
  const what = `no right to the keys of locks and their lines, with the keyPrefix ${quote(keyPrefix)}`;
  return [{ code: "REFUSED", severity, ...told(refused, what) }];
}

function clusterMember(node: string): Finding {
  const message = `${node} is a member of a Redis Cluster: pass the Cluster client as the only node instead`;
  return { code: "CLUSTER_MEMBER", severity: "error", subjects: [node], message };
}

function sameServer(facts: readonly Facts[]): readonly Finding[] {
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
  { node, info, quarantineLeftMs, writeError, appendfsync }: Facts,
): readonly Finding[] {
  const findings: Finding[] = [];
  const add = (code: FindingCode, severity: Finding["severity"], message: string): void => {
    findings.push({ code, severity, subjects: [node], message: `${node} ${message}` });
  };
  const isAlone = engine.nodes.length === 1;
  if (info.get("role") === "slave")
    add("REPLICA", "error", "is a replica: it refuses writes, and what it has may be stale");
  else if (writeError !== "") add("REFUSES_WRITES", "error", `refuses writes, so it grants nothing: ${writeError}`);
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
  if (isOld(version))
    add("OLD_VERSION", "error", `runs Redis ${version}: the scripts need 6.2 or later (SET with GET)`);
  if (quarantineLeftMs > 0) {
    add("QUARANTINED", "warning", `restarted or lost its data: it casts no vote for ${quarantineLeftMs} ms more`);
  }
  return findings;
}

function isOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major < 6 || (major === 6 && minor < 2);
}

function clocks(facts: readonly Facts[]): readonly Finding[] {
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

function otherQuarantine(facts: readonly Facts[], wholeMs: number): readonly Finding[] {
  const others = facts.filter(({ toldQuarantineMs: toldMs }) => toldMs !== undefined && toldMs !== wholeMs);
  if (others.length === 0) return [];
  const told = others.map(({ node, toldQuarantineMs: toldMs }) => `${node}: ${toldMs} ms`).join(", ");
  return [
    {
      code: "OTHER_QUARANTINE",
      severity: "error",
      subjects: others.map(({ node }) => node),
      message: `another client was last to tell its quarantine (${told}), which is not this one's of ${wholeMs} ms: maxTtl and driftFactor must be the same for all, or a node votes that may have forgotten a valid lock`,
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
