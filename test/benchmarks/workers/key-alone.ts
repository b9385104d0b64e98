/**
 * The smallest programs next to `ExclusiveWorker`, on the same BullMQ: the library's own batches of ends, with and
 * without bare scripts for a key.
 *
 * With keys, the program keeps the promises for each key while no process misbehaves: one job at a time, in order,
 * across processes, with a lease and a fencing token. A job that was taken and not finished keeps its key. The
 * additional cost of `ExclusiveWorker` is its recovery from jobs that were removed or moved by hand, parked jobs that
 * dashboards show, waiters of the lock, several keys, priorities in line, pauses, halts, renewals, signals, handles and
 * events.
 */
import { randomBytes } from "node:crypto";
import { Job, Worker, type WorkerOptions } from "bullmq";
import {
  type BullClient,
  checkScripts,
  fetchArguments,
  installedScripts,
  runScript,
  targetOf,
} from "../../../packages/workers/src/bullmq/bullmq.ts";
import { EndBatches } from "../../../packages/workers/src/bullmq/end-batches.ts";
import { JobEnd, replaceEndArguments } from "../../../packages/workers/src/bullmq/job-end.ts";
import type { ComposedScript } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import { queueKeys } from "../../../packages/workers/src/bullmq/rules/queue-keys.ts";
import { parseEnds } from "../../../packages/workers/src/scripts/command-replies.ts";
import { eachEnd, oncePerRequest, unpackable } from "../../../packages/workers/src/scripts/commands.lua.ts";
import { asFunction, asRepeatedFunction } from "../../../packages/workers/src/scripts/rules/lua.ts";

const ttlMs = 10_000;
const keyCount = queueKeys("").length;

const keyAlone = /* lua */ `
-- A job that may not run stands in its key's line; BullMQ is asked for another one.
local function take(reply, P, now, opts, token)
  while type(reply) == 'table' and type(reply[1]) == 'table' do
    local fields, id = reply[1], reply[2]
    local data
    for i = 1, #fields, 2 do if fields[i] == 'data' then data = fields[i + 1] end end
    local key = cjson.decode(data).key
    if call('HSETNX', P .. 'holders', key, id) == 1 or call('HGET', P .. 'holders', key) == id then
      call('SET', P .. 'lock:' .. key, token, 'PX', ${ttlMs})
      reply[5], reply[6] = key, call('INCR', P .. 'fence')
      return reply
    end
    call('RPUSH', P .. 'line:' .. key, id)
    call('LREM', P .. 'active', 1, id)
    call('DEL', P .. id .. ':lock')
    reply = bullMoveToActive({${[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map((n) => `FETCH[${n}]`).join(", ")}}, {P, now, opts})
  end
  return reply
end
`;

const fetchWithKey = /* lua */ `
FETCH = KEYS
return take(bullMoveToActive(KEYS, ARGV), ARGV[1], ARGV[2], ARGV[3], ARGV[#ARGV])
`;

/** ARGV[#ARGV]: "<token of the lock> <token for the next lock> <key>". */
const finishWithKey = /* lua */ `
local own, token, key = string.match(ARGV[#ARGV], '^(%S+) (%S+) (.*)$')
local P = ARGV[7]
if call('GET', P .. 'lock:' .. key) == own then call('DEL', P .. 'lock:' .. key) end
local next = call('LPOP', P .. 'line:' .. key)
if next then
  call('RPUSH', P .. 'wait', next)
  call('HSET', P .. 'holders', key, next)
else
  call('HDEL', P .. 'holders', key)
end
return take(bullMoveToFinished(KEYS, ARGV), P, ARGV[2], ARGV[8], token)
`;

interface Scripts {
  readonly fetch: ComposedScript;
  readonly finish: ComposedScript;
}

function compose(hasKeys: boolean): Scripts {
  const { scripts: bull } = checkScripts(installedScripts());
  const head = [
    "local call = redis.call",
    unpackable,
    "local FETCH",
    asFunction("bullMoveToActive", bull.moveToActive.lua),
  ];
  const finish = asRepeatedFunction(
    "bullMoveToFinished",
    bull.moveToFinished.lua,
    oncePerRequest(bull.moveToFinished.lua),
  );
  const name = hasKeys ? "alone:key" : "alone";
  return {
    fetch: {
      name: `${name}:fetch`,
      numberOfKeys: keyCount,
      lua: [...head, ...(hasKeys ? [keyAlone, fetchWithKey] : ["return bullMoveToActive(KEYS, ARGV)"])].join("\n"),
    },
    finish: {
      name: `${name}:finish`,
      numberOfKeys: keyCount,
      lua: (hasKeys
        ? [...head, keyAlone, finish, asFunction("finish", finishWithKey), "FETCH = KEYS", eachEnd]
        : [head[0], unpackable, finish, asFunction("finish", "return bullMoveToFinished(KEYS, ARGV)"), eachEnd]
      ).join("\n"),
    },
  };
}

interface Grant {
  readonly key: string;
  readonly token: string;
  readonly fencingToken: number;
  readonly untilMs: number;
}

/** Starts a plain worker whose ends of jobs share requests. With `hasKeys`, at most one job of a key runs at a time. */
export function startAlone<Data>(
  queue: string,
  process: (data: Data, fencingToken: number | undefined) => Promise<void>,
  { hasKeys, ...options }: WorkerOptions & { readonly hasKeys: boolean },
): Worker<Data> {
  const scripts = compose(hasKeys);
  const grants = new Map<string, Grant>();
  const worker = new Worker<Data>(
    queue,
    async (job) => {
      const grant = grants.get(String(job.id));
      if (hasKeys && !(performance.now() < (grant?.untilMs ?? 0))) throw new Error(`job ${job.id} has no lease`);
      await process(job.data, grant?.fencingToken);
    },
    { ...options, autorun: false },
  );
  const target = targetOf(worker, new Job(worker, "alone", {}));
  const original = target.execCommand.bind(target);
  replaceEndArguments(target);
  const newToken = (): string => randomBytes(20).toString("hex");

  const taken = (reply: unknown, token: string, sentMs: number): unknown => {
    if (!hasKeys || !Array.isArray(reply) || !Array.isArray(reply[0])) return reply;
    const [, id, , , key, fencingToken] = reply as readonly unknown[];
    const untilMs = sentMs + ttlMs;
    grants.set(String(id), { key: String(key), token, fencingToken: Number(fencingToken), untilMs });
    return reply;
  };

  const ends = new EndBatches<{ readonly client: BullClient; readonly end: JobEnd; readonly last: string }>(
    async (batch) => {
      const [first] = batch;
      if (first === undefined) return [];
      const args: unknown[] = [...queueKeys(first.end.facts.prefix), first.end.facts.prefix];
      for (const { end, last } of batch) args.push(...end.argumentsWith("", last));
      return parseEnds(await runScript(first.client, scripts.finish, args));
    },
  );

  const finish = async (client: BullClient, end: JobEnd): Promise<unknown> => {
    const token = hasKeys ? newToken() : "";
    const grant = grants.get(end.facts.jobId);
    grants.delete(end.facts.jobId);
    const sentMs = performance.now();
    return taken(await ends.add({ client, end, last: `${grant?.token} ${token} ${grant?.key}` }), token, sentMs);
  };

  const fetch = async (client: BullClient, args: readonly unknown[]): Promise<unknown> => {
    const token = hasKeys ? newToken() : "";
    const sentMs = performance.now();
    const [prefix, now, options_] = args.slice(keyCount);
    const told = [...fetchArguments(prefix, options_, Number(now)), token];
    return taken(await runScript(client, scripts.fetch, told), token, sentMs);
  };

  target.execCommand = (client, name, args) => {
    if ((args as unknown) instanceof JobEnd) return finish(client, args as unknown as JobEnd);
    return name === "moveToActive" ? fetch(client, args) : original(client, name, args);
  };
  void worker.run().catch(() => undefined);
  return worker;
}
