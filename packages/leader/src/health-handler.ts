/**
 * Answers the probes of an orchestrator without a request to the lock nodes. A lock node that is down must not restart
 * a process or take it out of service.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { listOf, Schema, type ShapeOf, shaped } from "@x/redlock-core/kit";
import type { LeaderElection, LeaderHealth } from "./election/election.ts";

/** The part of a BullMQ worker, including `ExclusiveWorker`, that the handler reads. */
export interface Running {
  readonly name: string;
  isRunning(): boolean;
}

export interface HealthHandlerOptions {
  /** The elections that this process takes part in. Default none. */
  readonly elections?: readonly LeaderElection[] | undefined;
  /** The workers of this process. Default none. */
  readonly workers?: readonly Running[] | undefined;
}

const ELECTION = shaped<LeaderElection>(
  "a LeaderElection",
  ({ name, health }) => typeof name === "string" && typeof health === "function",
);
const WORKER = shaped<Running>(
  "a worker",
  ({ name, isRunning }) => typeof name === "string" && typeof isRunning === "function",
);

const OPTIONS = new Schema({
  elections: listOf("an array of elections", ELECTION).default([]),
  workers: listOf("an array of workers", WORKER).default([]),
} satisfies ShapeOf<HealthHandlerOptions>);

/**
 * Returns a listener for `createServer` of `node:http`. The listener answers in JSON with 200 or 503, without the text
 * of errors. `problems` in the answer says in words what is wrong.
 *
 * - `/livez` answers 503 if a task runs on without its lease, or if an election was stopped: restart the process.
 * - `/readyz` also answers 503 unless each election campaigns or leads and each worker runs. Which process leads does
 *   not matter.
 *
 * Other paths are answered with 404, and methods other than GET and HEAD with 405.
 * @throws TypeError naming option, rule and value
 */
export function healthHandler(
  options: HealthHandlerOptions = {},
): (request: IncomingMessage, response: ServerResponse) => void {
  const { elections, workers } = OPTIONS.resolve(options);
  return (request, response) => {
    const [path] = (request.url ?? "").split("?");
    const answer = (status: number, body: unknown): void => {
      response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" });
      response.end(request.method === "HEAD" ? undefined : JSON.stringify(body));
    };
    if (path !== "/livez" && path !== "/readyz") return answer(404, { error: "try /livez or /readyz" });
    if (request.method !== "GET" && request.method !== "HEAD") return answer(405, { error: "only GET and HEAD" });
    const of = elections.map((election) => ({ election: election.name, ...factsOf(election) }));
    const working = workers.map((worker) => ({ queue: worker.name, running: worker.isRunning() }));
    const stuck = of.filter(({ healthy }) => !healthy).map(unhealthyText);
    const idle = [
      ...of
        .filter(({ healthy, running }) => healthy && !running)
        .map(({ election }) => `${election}: run() was not called`),
      ...working
        .filter(({ running }) => !running)
        .map(({ queue }) => `${queue}: the worker does not run, or cannot write to its Redis`),
    ];
    const problems = path === "/livez" ? stuck : [...stuck, ...idle];
    answer(problems.length === 0 ? 200 : 503, { problems, elections: of, workers: working });
  };
}

function factsOf(election: LeaderElection): Pick<LeaderHealth, "healthy" | "running" | "state" | "overrunMs"> {
  const { healthy, running, state, overrunMs } = election.health();
  return { healthy, running, state, overrunMs };
}

function unhealthyText({ election, overrunMs }: { readonly election: string; readonly overrunMs: number }): string {
  return overrunMs > 0
    ? `${election}: the task runs on without its lease, for ${Math.round(overrunMs)} ms`
    : `${election}: the election was stopped`;
}
