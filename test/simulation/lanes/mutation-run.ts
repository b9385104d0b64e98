/** Removes one protection of the lane and looks for the invariant that breaks. */
import { type RedisServer, startRedis } from "@x/test-support";
import { isPlayed, knownSchedule } from "../known.ts";
import type { MutationOptions, MutationResult } from "../mutation-run.ts";
import { numberOf } from "../mutation-run.ts";
import { type LaneCode, loadLanes } from "./load.ts";
import type { LaneMutation } from "./mutations.ts";
import { type LaneSearch, searchLanes } from "./search.ts";
import type { Focus } from "./setting.ts";
import { LaneWorld } from "./world.ts";

/** The servers of many mutations, because starting a server costs as much as a schedule. */
export class MutationServers implements AsyncDisposable {
  /** A world whose Redis keeps the scripts of the unchanged lane. */
  readonly intact: LaneWorld;
  readonly #server: RedisServer;

  static async start(): Promise<MutationServers> {
    return new MutationServers(await startRedis(), await LaneWorld.start());
  }

  private constructor(server: RedisServer, intact: LaneWorld) {
    this.#server = server;
    this.intact = intact;
  }

  async mutated(): Promise<LaneWorld> {
    return await LaneWorld.on(this.#server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.intact[Symbol.asyncDispose]();
    await this.#server.stop();
  }
}

/**
 * Runs a mutation, like `runMutation` for locks. A mutation with a focus is searched with the focus; with `quick`, the
 * recorded schedule is played first.
 */
export async function runLaneMutation(
  mutation: LaneMutation,
  options: MutationOptions,
  servers: MutationServers,
): Promise<MutationResult> {
  const { seed, budget, quick } = options;
  const { focus, protection } = mutation;
  const code = await loadLanes(mutation.patches);
  await using world = await servers.mutated();
  const searched = async (seeds: string, drawn?: Focus): Promise<LaneSearch> =>
    await searchLanes(code, { seed: seeds, runs: budget, world, ...(drawn === undefined ? {} : { focus: drawn }) });
  const known = quick ? knownSchedule(protection, seed) : undefined;
  const replayed = known === undefined ? undefined : await searched(known, focus);
  const isKnown = replayed?.violation !== undefined;
  if (known !== undefined && isKnown) await checkWithAll(known, focus, servers.intact);
  const found = isKnown ? replayed : await searched(seed, focus);
  const drawn = focus === undefined ? found : quick ? undefined : await searched(seed);
  const first = drawn?.violation;
  // Such a script breaks every schedule, and shows nothing.
  if (found.violation?.violation?.message.includes("Error compiling script") === true) {
    throw new Error(`without "${protection}", a script does not compile`);
  }
  return {
    mutation,
    random:
      first?.violation === undefined ? undefined : { runs: numberOf(first.seed), invariant: first.violation.invariant },
    directed:
      focus === undefined
        ? undefined
        : {
            name: `${focus.name}, ${numberOf(found.violation?.seed ?? `/${budget}`)}`,
            invariant: found.violation?.violation?.invariant,
          },
    brokenBy: found.violation?.seed,
  };
}

let intact: Promise<LaneCode> | undefined;

/** Throws if the schedule breaks with every protection in place, because such a schedule shows nothing. */
async function checkWithAll(schedule: string, focus: Focus | undefined, world: LaneWorld): Promise<void> {
  if (isPlayed(schedule, focus === undefined ? "lanes" : "focus")) return;
  const options = { seed: schedule, runs: 1, world, ...(focus === undefined ? {} : { focus }) };
  intact ??= loadLanes();
  const { violation } = await searchLanes(await intact, options);
  if (violation !== undefined) throw new Error(`${schedule} breaks even with every protection in place`);
}
