import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ElectionEvent, type ElectionState, IDLE, nextState, termOf } from "../src/rules/state.ts";

const event: fc.Arbitrary<ElectionEvent> = fc.oneof(
  fc.constantFrom<ElectionEvent>({ type: "campaign" }, { type: "cool" }, { type: "led" }, { type: "ended" }),
  fc.nat().map((term): ElectionEvent => ({ type: "won", term })),
  fc.constantFrom<ElectionEvent>({ type: "drain", reason: "stopping" }, { type: "drain", reason: "ineligible" }),
);

function after(events: readonly ElectionEvent[], from: ElectionState = IDLE): ElectionState {
  return events.reduce(nextState, from);
}

describe("the state of an election", () => {
  it("goes from a campaign through a term back to idle", () => {
    const names = ["campaign", "won", "led", "drain", "ended"] as const;
    const events: ElectionEvent[] = names.map((type) =>
      type === "won" ? { type, term: 7 } : type === "drain" ? { type, reason: "resigned" } : { type },
    );
    const seen = events.map((_, index) => after(events.slice(0, index + 1)).name);
    expect(seen).toEqual(["follower", "candidate", "leader", "draining", "idle"]);
  });

  it("becomes leader only with a lock that was acquired in the same campaign", () => {
    fc.assert(
      fc.property(fc.array(event), (events) => {
        const state = after(events);
        if (termOf(state) === undefined) return;
        const lastEnd = events.findLastIndex((each) => each.type === "ended");
        expect(events.slice(lastEnd + 1).some((each) => each.type === "won")).toBe(true);
      }),
    );
  });

  it("never leaves stopped", () => {
    fc.assert(
      fc.property(fc.array(event), fc.array(event), (before, later) => {
        const stopped = nextState(after(before), { type: "stop" });
        expect(after(later, stopped).name).toBe("stopped");
      }),
    );
  });

  it("keeps the number of the term until the term has ended", () => {
    fc.assert(
      fc.property(fc.nat(), fc.array(event), (term, events) => {
        let state = after([{ type: "campaign" }, { type: "won", term }]);
        for (const each of events) {
          state = nextState(state, each);
          if (each.type === "ended") return;
          expect(state).toMatchObject({ term });
        }
      }),
    );
  });
});
