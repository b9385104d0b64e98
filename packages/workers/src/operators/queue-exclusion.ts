/** The operators' change between an exclusive and a watched queue. The methods are described at `QueueOperators`. */
import { ExclusionRefusedError } from "../errors.ts";
import { parseOverlapping, parseWatched } from "../scripts/operator-replies.ts";
import type { OperatorLane } from "./operator-lane.ts";
import type { ListOptions, SetExclusionOptions } from "./queue-operators.ts";
import type { ExclusionFigures, ExclusionMode, ExclusionReport } from "./rules/exclusion.ts";
import { obstaclesTo } from "./rules/obstacles.ts";
import { EXCLUSION_CHANGE, EXCLUSION_MODE, EXCLUSION_REPORT } from "./rules/operator-arguments.ts";
import { readRegistry } from "./worker-registry.ts";

const PAGE = 500;

interface QueueExclusionParts {
  readonly queue: string;
  readonly lane: OperatorLane;
  /** Counts the connected workers of any kind. */
  readonly countWorkers: () => Promise<number>;
}

export class QueueExclusion {
  readonly #parts: QueueExclusionParts;

  constructor(parts: QueueExclusionParts) {
    this.#parts = parts;
  }

  async set(given: ExclusionMode, options: SetExclusionOptions): Promise<boolean> {
    const mode = EXCLUSION_MODE.of("mode", given);
    const { force } = EXCLUSION_CHANGE.resolve(options);
    const { queue, lane } = this.#parts;
    const mayBeRefused = !force && (await this.figures(0)).mode !== mode;
    const obstacles = mayBeRefused ? await this.#obstaclesTo(mode) : [];
    if (obstacles.length > 0) throw new ExclusionRefusedError(queue, mode, obstacles);
    const isChanged = (await lane.operate("watch", mode === "watch" ? 1 : "")) === 1;
    if (mode === "watch") await this.#letGo();
    return isChanged;
  }

  async report(options: ListOptions): Promise<ExclusionReport> {
    const { limit } = EXCLUSION_REPORT.resolve(options);
    const figures = await this.figures(limit);
    const obstacles = await this.#obstaclesTo(figures.mode === "on" ? "watch" : "on");
    return { ...figures, overlappingKeys: await this.#countOverlapping(), obstacles };
  }

  async figures(limit: number): Promise<ExclusionFigures> {
    return parseWatched(await this.#parts.lane.operate("watched", limit));
  }

  async #obstaclesTo(mode: ExclusionMode): Promise<readonly string[]> {
    const { lane, countWorkers } = this.#parts;
    const { setups, jobs } = await readRegistry(lane);
    // Where Redis refuses to list its clients, only the running jobs of plain workers are found.
    const connected = await lane.answered(countWorkers().catch(() => 0));
    return obstaclesTo(mode, { setups, strays: (await lane.isKeyed()) ? jobs : [], connected });
  }

  /**
   * Gives the jobs in line their keys, page by page. The jobs of a key follow one another. If the call is interrupted,
   * workers continue with their next sweep.
   */
  async #letGo(): Promise<void> {
    let cursor = "0";
    do {
      [cursor] = (await this.#parts.lane.operate("list", cursor, PAGE)) as [string];
    } while (cursor !== "0");
  }

  async #countOverlapping(): Promise<number> {
    let [cursor, count] = ["0", 0];
    do {
      const page = parseOverlapping(await this.#parts.lane.operate("overlapping", cursor, PAGE));
      count += page.count;
      cursor = page.cursor;
    } while (cursor !== "0");
    return count;
  }
}
