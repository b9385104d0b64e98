/**
 * Runs that the solver has found, as timelines: the beliefs of clients, the owner of the key on a node, and when the
 * node casts no vote.
 */
import type { Attack, Moment, Run } from "../proof/attacks.ts";
import { CLIENTS, type Client, KEY, STATUS } from "../proof/model.ts";
import type { Bar, Mark, Timeline } from "./timeline.ts";

export function runTimeline(title: string, { without }: Attack, { moments }: Run): Timeline {
  const bars: Bar[] = [];
  const last = moments.at(-1)?.time ?? 0;
  for (const x of CLIENTS) {
    for (const [fromMs, toMs] of beliefsOf(moments, x)) {
      bars.push({ who: x, fromMs, toMs, text: "believes that it holds", kind: "held" });
    }
  }
  for (const [index, { time, values }] of moments.entries()) {
    const key = Number(values.get("nodes.n1.key"));
    if (key === Number(moments[index - 1]?.values.get("nodes.n1.key") ?? 0) || key === Number(KEY.nobody)) continue;
    const end = moments.slice(index).find((each) => Number(each.values.get("nodes.n1.key")) !== key)?.time;
    const toMs = end ?? last + Number(moments.at(-1)?.values.get("nodes.n1.life"));
    bars.push({
      who: "node: key",
      fromMs: time,
      toMs,
      text: key === Number(KEY.A) ? "A's key" : "B's key",
      kind: "doubtful",
    });
  }
  const loss = without === "the quarantine" ? undefined : moments.find(({ step }) => step === "n1 loses its data");
  if (loss !== undefined) {
    const toMs = loss.time + Number(loss.values.get("nodes.n1.silence"));
    bars.push({ who: "node: votes", fromMs: loss.time, toMs, text: "casts no vote", kind: "fault" });
  }
  const endMs = last + 2_500;
  const marks = moments.flatMap(({ step, time }): readonly Mark[] => {
    if (step === "n1 loses its data") return [{ who: "node: key", atMs: time, text: "loses its data" }];
    if (/^n1 (releases|grants B)/.test(step))
      return [
        { who: "node: key", atMs: time, text: step.replace(/^n1 /, "").replace("releases another", "C deletes it") },
      ];
    if (step.endsWith("gives up or ends")) return [{ who: step[0] ?? "", atMs: time, text: "releases" }];
    return [];
  });
  const cut = bars.map((bar) => ({ ...bar, toMs: Math.min(bar.toMs, endMs) }));
  const participants = ["A", "B", "node: key", ...(loss === undefined ? [] : ["node: votes"])];
  return { title, endMs, participants, bars: cut, marks };
}

/** Between two moments the client's clocks advance evenly. */
function beliefsOf(moments: readonly Moment[], x: Client): readonly (readonly [fromMs: number, toMs: number])[] {
  const leftOf = ({ values }: Moment): number =>
    Math.min(Number(values.get(`${x}.leftMono`)), Number(values.get(`${x}.leftWall`)));
  const isHeld = ({ values }: Moment): boolean => Number(values.get(`${x}.status`)) === Number(STATUS.held);
  const from = moments.findIndex((each) => isHeld(each) && leftOf(each) > 0);
  if (from === -1) return [];
  const start = moments[from] as Moment;
  const after = moments.findIndex((each, index) => index > from && (!isHeld(each) || leftOf(each) <= 0));
  const before = moments[after === -1 ? moments.length - 1 : after - 1] as Moment;
  const stop = after === -1 ? Number.POSITIVE_INFINITY : (moments[after]?.time ?? 0);
  return [[start.time, Math.min(stop, before.time + leftOf(before))]];
}
