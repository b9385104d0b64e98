/**
 * Spans of acquisitions, held locks, leader terms, ticks and jobs.
 *
 * While a traced call runs, its span is the active span, so the calls inside become its children. Active spans need the
 * storage of OpenTelemetry's `AsyncLocalStorageContextManager`, which has no public name. Without this storage spans
 * have parents, but no children.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { tracingChannel } from "node:diagnostics_channel";
import { inspect } from "node:util";
import {
  type Attributes,
  type Context,
  context,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import type { LeaderTraces } from "@x/leader";
import type { RedlockTraces } from "@x/redlock-core";
import type { WorkerTraces } from "@x/workers";
import { allOf, listen, listenToCalls } from "./channels.ts";
import { idOf, type NameOf, nameOfAll } from "./names.ts";

interface Begin {
  readonly name: string;
  readonly attributes: Attributes;
  /** Whether the span starts a new trace, because its caller lasts as long as the process. */
  readonly isRoot?: boolean;
}

type Ended<Facts> = Facts & { readonly result?: unknown; readonly error?: unknown };

interface Drawing<Facts> {
  readonly begin: (facts: Facts) => Begin;
  /** Adds the facts that are known at the end of the call. `parent` is the context in which the call was made. */
  readonly end?: (span: Span, facts: Ended<Facts>, parent: Context) => void;
}

const RESOURCES = "x.lock.resources";
const FENCING_TOKEN = "x.fencing_token";

/** Creates all spans. Returns a function that stops the spans. */
export function drawSpans(tracer: Tracer, nameOf: NameOf): () => void {
  const held = new HeldSpans(tracer);
  const beginOf = (call: keyof RedlockTraces, facts: RedlockTraces[keyof RedlockTraces]): Begin => {
    const { resources } = facts;
    const token = "fencingToken" in facts ? { [FENCING_TOKEN]: facts.fencingToken } : {};
    const attributes = { [RESOURCES]: [...resources], ...token };
    return { name: `lock ${call} ${nameOfAll(resources, nameOf)}`, attributes };
  };
  return allOf([
    draw<RedlockTraces["acquire"]>("x.redlock:acquire", tracer, {
      begin: (facts) => beginOf("acquire", facts),
      end: (span, { resources, result }, parent) => {
        if (!isLock(result)) {
          span.setAttribute("x.lock.acquired", false);
          return;
        }
        span.setAttributes({ "x.lock.acquired": true, [FENCING_TOKEN]: result.fencingToken });
        held.begin(`lock hold ${nameOfAll(resources, nameOf)}`, result, parent);
      },
    }),
    ...(["using", "extend", "release"] as const).map((call) =>
      draw<RedlockTraces[typeof call]>(`x.redlock:${call}`, tracer, { begin: (facts) => beginOf(call, facts) }),
    ),
    draw<LeaderTraces["term"]>("x.leader:term", tracer, {
      begin: ({ election, candidate, term, fencingToken }) => ({
        name: `leader term ${election}`,
        attributes: {
          "x.leader.election": election,
          "x.leader.id": candidate,
          "x.leader.term": term,
          [FENCING_TOKEN]: fencingToken,
        },
        isRoot: true,
      }),
    }),
    draw<LeaderTraces["tick"]>("x.leader:tick", tracer, {
      begin: ({ election, schedule, tickId, term, lateMs, fencingToken }) => ({
        name: `scheduler tick ${schedule}`,
        attributes: {
          "x.leader.election": election,
          "x.leader.term": term,
          "x.scheduler.schedule": schedule,
          "x.scheduler.tick_id": tickId,
          "x.scheduler.lateness": lateMs / 1_000,
          [FENCING_TOKEN]: fencingToken,
        },
        isRoot: true,
      }),
    }),
    draw<WorkerTraces["run"]>("x.workers:run", tracer, {
      begin: ({ queue, jobId, keys, fencingToken, parkedMs }) => {
        const attributes = {
          "x.workers.keys": [...keys],
          [FENCING_TOKEN]: fencingToken,
          "x.workers.parked": parkedMs / 1_000,
        };
        // Adds the attributes to BullMQ's own span of the job, if the worker has the option `telemetry`.
        trace.getActiveSpan()?.setAttributes(attributes);
        return {
          name: `exclusive job ${queue}`,
          attributes: { "x.workers.queue": queue, "x.workers.job_id": jobId, ...attributes },
        };
      },
    }),
    listen("x.redlock.released", (message) => held.end(message)),
    listen("x.redlock.lost", (message) => held.end(message, message.reason)),
    () => held.stop(),
  ]);
}

interface HeldLock {
  readonly resources: readonly string[];
  readonly fencingToken: number;
}

function isLock(result: unknown): result is HeldLock {
  return typeof result === "object" && result !== null && "fencingToken" in result;
}

/** Spans of held locks. A span ends with the message of the release or loss, not with the end of a call. */
class HeldSpans {
  readonly #tracer: Tracer;
  readonly #spans = new Map<string, Span>();

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  begin(name: string, lock: HeldLock, parent: Context): void {
    const { resources, fencingToken } = lock;
    const attributes = { [RESOURCES]: [...resources], [FENCING_TOKEN]: fencingToken };
    this.#spans.set(idOf(lock), this.#tracer.startSpan(name, { attributes }, parent));
  }

  /** Ends the span of a lock. A lost lock is reported a second time when its holder releases it. */
  end(lock: HeldLock, lossReason?: string): void {
    const span = this.#spans.get(idOf(lock));
    this.#spans.delete(idOf(lock));
    if (span === undefined) return;
    if (lossReason !== undefined) {
      span.setAttribute("x.lock.loss_reason", lossReason);
      span.setStatus({ code: SpanStatusCode.ERROR, message: `lost: ${lossReason}` });
    }
    span.end();
  }

  stop(): void {
    for (const span of this.#spans.values()) span.end();
    this.#spans.clear();
  }
}

function draw<Facts extends object>(name: string, tracer: Tracer, { begin, end }: Drawing<Facts>): () => void {
  const open = new Map<Facts, { readonly span: Span; readonly parent: Context }>();
  const start = (facts: Facts): Context => {
    const parent = context.active();
    try {
      const { name: spanName, attributes, isRoot = false } = begin(facts);
      const span = tracer.startSpan(spanName, { attributes, root: isRoot }, parent);
      open.set(facts, { span, parent });
      return trace.setSpan(parent, span);
    } catch {
      return parent;
    }
  };
  const finish = (facts: Ended<Facts>): void => {
    const { span, parent } = open.get(facts) ?? {};
    if (span === undefined || parent === undefined) return;
    open.delete(facts);
    if (facts.error !== undefined) {
      const error = facts.error instanceof Error ? facts.error : new Error(inspect(facts.error));
      span.recordException(error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    }
    end?.(span, facts, parent);
    span.end();
  };
  const storage = contextStorage();
  const endAll = (): void => {
    for (const { span } of open.values()) span.end();
    open.clear();
  };
  if (storage === undefined) return allOf([listenToCalls<Facts>(name, { begins: start, ends: finish }), endAll]);
  const began = tracingChannel<Context, Facts>(name).start;
  began.bindStore(storage, start);
  const stop = listenToCalls<Facts>(name, { begins: () => undefined, ends: finish });
  return allOf([stop, () => began.unbindStore(storage), endAll]);
}

/** Returns the storage of the active context. Undefined if the context manager is not OpenTelemetry's own. */
function contextStorage(): AsyncLocalStorage<Context> | undefined {
  const api = context as unknown as { _getContextManager?(): { readonly _asyncLocalStorage?: unknown } };
  const storage = api._getContextManager?.()._asyncLocalStorage;
  return storage instanceof AsyncLocalStorage ? storage : undefined;
}
