import type { LeaderScheduler, TickRecord } from "@x/leader/scheduler";
import { expect, it } from "vitest";
import { Histories } from "../src/page/histories.ts";
import type { ScheduleView } from "../src/page/state.ts";

const schedule = (name: string, tickAt: number): ScheduleView => ({
  scheduler: "0",
  election: undefined,
  name,
  next: undefined,
  last: tickAt,
  tickAt,
  outcome: "run",
  lateMs: 1,
  tookMs: 1,
  failure: undefined,
  missed: 0,
  paused: false,
  running: 0,
  owner: "a",
  history: [],
});

/** A source of histories that notes the requests, and fails for the schedule `broken`. */
class Asked {
  readonly names: string[] = [];
  broken = "";

  readonly schedulerOf = (): LeaderScheduler =>
    ({
      history: async (name: string): Promise<readonly Pick<TickRecord, "outcome" | "scheduledAt">[]> => {
        this.names.push(name);
        if (name === this.broken) throw new Error("no answer");
        return [{ outcome: "run", scheduledAt: new Date(7) }];
      },
    }) as unknown as LeaderScheduler;
}

it("reads the history of a schedule once, until its newest tick changes", async () => {
  const [histories, asked] = [new Histories(), new Asked()];
  const at = async (ms: number): Promise<void> => await histories.look([schedule("a", ms)], asked.schedulerOf);
  for (const ms of [1, 1, 1, 2, 2]) await at(ms);
  expect(asked.names).toEqual(["a", "a"]);
  expect(histories.of(schedule("a", 2))).toEqual([{ outcome: "run", at: 7 }]);
});

it("reads many schedules in turn, four per look, even if one cannot be read", async () => {
  const [histories, asked] = [new Histories(), new Asked()];
  asked.broken = "s1";
  const names = Array.from({ length: 10 }, (_, at) => `s${at}`);
  for (let look = 0; look < 5; look += 1) {
    await histories.look(
      names.map((name) => schedule(name, look)),
      asked.schedulerOf,
    );
  }
  expect(asked.names).toEqual([...names, ...names]);
});
