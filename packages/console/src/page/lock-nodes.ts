/**
 * The lock nodes, and the locks that are found on them. Each look reads a part of each node's keys, and the locks that
 * browsers show.
 */
import type { Clock, NodeInspection, Redlock } from "@x/redlock-core";
import { type NodeReply, protocolOf, type RedlockProtocol, slotOf } from "@x/redlock-core/protocol";
import { ClientNames } from "./client-names.ts";
import { LOOK, MASTERS } from "./look.lua.ts";
import { LockTable, type Look, parseLook } from "./rules/lock-table.ts";
import { hasSlot, type Master, parseMasters } from "./rules/masters.ts";
import type { SearchTurns } from "./rules/searches.ts";
import { type SemaphoreName, SemaphoreTable } from "./rules/semaphore-table.ts";
import {
  type BrowserQuery,
  type LiveView,
  type NodesView,
  PAGE_ROWS,
  type PageSection,
  type PageState,
  type SharedState,
} from "./state.ts";
import { textOf, Watched } from "./watched.ts";

/** How many keys each node reads per look. */
const SEARCHED_KEYS = 1_000;
/** The most locks on open pages that each look reads again. */
const MOST_SHOWN = 500;
/** A resource that is never locked. Inspecting it shows the quarantine of the nodes. */
const PROBE = "x:console";

/** The answer of a node, with the node's position. */
interface NodeAnswer {
  readonly at: number;
  readonly reply: NodeReply;
}

interface LockNodesParts {
  readonly redlock: Redlock;
  readonly turns: SearchTurns;
  /** Returns what browsers show. */
  readonly viewers: () => readonly BrowserQuery[];
  /** Called with what a node has shown. */
  readonly onLook: (look: Look) => void;
  /** Called when a node answers as another process than before. */
  readonly onRestart: (node: string) => void;
}

export class LockNodes {
  readonly #parts: LockNodesParts;
  readonly #protocol: RedlockProtocol;
  readonly #clock: Clock;
  readonly #prefix: string;
  readonly #locks: LockTable;
  readonly #semaphores: SemaphoreTable;
  readonly #clientNames: ClientNames;
  readonly #nodes: Watched<NodesView>;
  readonly #quarantine: Watched<readonly NodeInspection[]>;
  /** Since when each node has not answered, by its position. */
  readonly #downSince = new Map<number, number>();
  /** The run_id of each node, by its position and name. */
  readonly #runIds = new Map<string, string>();
  #masters: readonly Master[] = [];

  constructor(parts: LockNodesParts) {
    const { redlock, turns } = parts;
    const protocol = protocolOf(redlock);
    this.#parts = parts;
    this.#protocol = protocol;
    this.#clock = protocol.clock;
    this.#prefix = protocol.keys.lockKey("x").slice(0, -1);
    this.#locks = new LockTable(redlock.quorum, this.#prefix, turns);
    this.#semaphores = new SemaphoreTable({
      quorum: redlock.quorum,
      isCluster: protocol.isCluster,
      nameOf: (key) => this.#semaphoreIn(key),
    });
    this.#clientNames = new ClientNames((clients) => protocol.namesOf(clients));
    this.#nodes = new Watched(protocol.clock, () => this.#lookAtNodes());
    this.#quarantine = new Watched(protocol.clock, async () => (await redlock.inspect(PROBE)).nodes);
  }

  get section(): PageSection<NodesView> {
    return this.#nodes.section;
  }

  /** Whether all keys of the nodes have been read. */
  get isComplete(): boolean {
    return this.#locks.isComplete;
  }

  get live(): LiveView {
    const { value, at } = this.section;
    const error = this.#lockError;
    return { isLive: error === undefined && value !== undefined, at, error };
  }

  async look(): Promise<void> {
    await this.#nodes.look();
  }

  async lookAtQuarantine(): Promise<void> {
    await this.#quarantine.look();
  }

  /** Whether the result of a search is known, or can still be searched before the next look. */
  canFind(text: string): boolean {
    return this.#locks.find(text) !== undefined;
  }

  locksFor({ locks: page, findLock }: BrowserQuery): PageState["locks"] {
    const found = this.#locks.find(findLock);
    const nowMs = this.#clock.monotonicMs();
    const shown = pageOf(found, page);
    const value = {
      locks: shown.flatMap((key) => {
        const view = this.#locks.viewOf(key, nowMs);
        return view === undefined
          ? []
          : { ...view, owner: view.owner ?? this.#clientNames.of(this.#locks.clientOf(key)) };
      }),
      total: this.#locks.size,
      found: found?.length ?? 0,
      isComplete: found !== undefined && this.#locks.isComplete,
    };
    return { value, error: this.#lockError, at: this.section.at };
  }

  get semaphores(): SharedState["semaphores"] {
    return { semaphores: this.#semaphores.views(this.#clock.monotonicMs()), total: this.#semaphores.size };
  }

  /** Returns the name of the semaphore or read-write lock whose state has this key. */
  #semaphoreIn(key: string): SemaphoreName | undefined {
    const kind = key.endsWith(":semaphore") ? "semaphore" : "readwrite";
    const owner = key.slice(0, -kind.length - 1);
    // The key of a name with a hash tag has no braces of its own.
    const inner = owner.startsWith("{") && owner.endsWith("}") ? owner.slice(1, -1) : owner;
    const name = [inner, owner]
      .filter((each) => each.startsWith(this.#prefix))
      .map((each) => each.slice(this.#prefix.length))
      .find((each) => each !== "" && this.#protocol.keys.sideKey(each, kind) === key);
    return name === undefined ? undefined : { name, kind: kind === "readwrite" ? "read-write lock" : kind };
  }

  get #lockError(): string | undefined {
    const { value: nodes, error } = this.section;
    if (error !== undefined || nodes === undefined || nodes.answering >= nodes.quorum) return error;
    if (nodes.isCluster) return `${nodes.answering} of ${nodes.nodes.length} masters answer, each has locks of its own`;
    return `${nodes.answering} of ${nodes.nodes.length} nodes answer, ${nodes.quorum} make a quorum`;
  }

  async #lookAtNodes(): Promise<NodesView> {
    const { redlock, viewers, onLook, onRestart } = this.#parts;
    const { isCluster } = this.#protocol;
    const shown = this.#shownLocks();
    const { cursors } = this.#locks;
    const args = [this.#prefix, SEARCHED_KEYS, cursors.length / 2, ...cursors];
    const asked = this.#semaphores.asked;
    const wallMs = this.#clock.wallMs();
    const answers = isCluster
      ? await this.#askMasters(args, asked, shown)
      : await this.#askNodes([...args, asked.length, ...asked, ...this.#withLines(shown)]);
    const nowMs = this.#clock.monotonicMs();
    const answered = answers.filter(({ reply }) => reply.ok).length;
    const hasQuorum = answered >= (isCluster ? answers.length : redlock.quorum);
    // Nodes are identified by their position, because two nodes may have the same name by mistake.
    const nodes = answers.map(({ at, reply }) => {
      const quarantineLeftMs = this.#quarantine.section.value?.[at]?.quarantineLeftMs;
      if (reply.ok) this.#downSince.delete(at);
      else if (!this.#downSince.has(at)) this.#downSince.set(at, wallMs);
      const downSince = this.#downSince.get(at);
      const known = { node: reply.node, tookMs: Math.round(reply.tookMs), quarantineLeftMs, downSince };
      if (!reply.ok) {
        // Without a quorum the page shows what was last known, with its age.
        if (hasQuorum) this.#forget(at);
        return { ...known, error: textOf(reply.error), clockMs: undefined };
      }
      const look = parseLook(reply.value);
      const process = `${at} ${reply.node}`;
      if ((this.#runIds.get(process) ?? look.runId) !== look.runId) onRestart(reply.node);
      this.#runIds.set(process, look.runId);
      this.#locks.add(at, look, { asked: shown, wallMs, nowMs });
      this.#semaphores.add(at, look.semaphores, { asked, nowMs });
      onLook(look);
      return { ...known, error: undefined, clockMs: Math.round(look.nowMs - wallMs - reply.tookMs / 2) };
    });
    this.#locks.renew(new Set(viewers().map(({ findLock }) => findLock)));
    await this.#clientNames.look(this.#shownLocks().map((key) => this.#locks.clientOf(key)));
    const answering = nodes.filter(({ error }) => error === undefined).length;
    return { nodes, isCluster, quorum: isCluster ? nodes.length : redlock.quorum, answering };
  }

  async #askNodes(args: readonly (string | number)[]): Promise<readonly NodeAnswer[]> {
    const replies = await this.#protocol.run(LOOK, { keys: [], args });
    return replies.map((reply, at) => ({ at, reply }));
  }

  #forget(node: number): void {
    this.#locks.forget(node);
    this.#semaphores.forget(node);
  }

  /** Asks each master of the Cluster, with those semaphores and shown locks that belong to the master. */
  async #askMasters(
    args: readonly (string | number)[],
    asked: readonly string[],
    shown: readonly string[],
  ): Promise<readonly NodeAnswer[]> {
    const protocol = this.#protocol;
    const [told] = await protocol.run(MASTERS, { keys: [], args: [] });
    // The node that answers may be missing. The masters that are already known may still answer.
    if (told?.ok === true) this.#known(parseMasters(told.value, this.#masters));
    else if (this.#masters.length === 0) throw told?.error ?? new Error("no node");
    const asking = this.#masters.map(async (master): Promise<readonly NodeAnswer[]> => {
      const [[slot] = [0]] = master.slots;
      const [semaphores, own] = [asked, shown].map((keys) => keys.filter((key) => hasSlot(master, slotOf(key)))) as [
        string[],
        string[],
      ];
      const given = [...args, semaphores.length, ...semaphores, ...this.#withLines(own)];
      const replies = await protocol.run(LOOK, { keys: [protocol.keys.keyInSlot(slot)], args: given });
      return replies.map((reply) => ({ at: master.at, reply: { ...reply, node: master.name } }));
    });
    return (await Promise.all(asking)).flat();
  }

  /** Returns each lock key with the key of its lines of waiters. */
  #withLines(lockKeys: readonly string[]): readonly string[] {
    return lockKeys.flatMap((key) => [key, this.#protocol.keys.linesKey(key.slice(this.#prefix.length))]);
  }

  #known(masters: readonly Master[]): void {
    for (const { at } of this.#masters) if (!masters.some((master) => master.at === at)) this.#forget(at);
    this.#masters = masters;
  }

  /** The keys of the locks that browsers show. */
  #shownLocks(): readonly string[] {
    const shown = new Set<string>();
    for (const { locks: page, findLock } of this.#parts.viewers()) {
      for (const key of pageOf(this.#locks.find(findLock), page)) {
        if (shown.size < MOST_SHOWN) shown.add(key);
      }
    }
    return [...shown];
  }
}

function pageOf(keys: readonly string[] | undefined, page: number): readonly string[] {
  return keys?.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS) ?? [];
}
