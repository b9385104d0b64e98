import { until } from "@x/test-support";
import { expect, it } from "vitest";
import { finished, gate, jobs, Lab } from "./support/lab.ts";

/** Reads the text format of Prometheus: samples by name and labels. Throws for a line that is not a sample. */
function samplesOf(text: string): ReadonlyMap<string, number> {
  const samples = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (/^# (HELP \w+ .+|TYPE \w+ (gauge|counter))$/.test(line)) continue;
    const [, name, labels, value] = /^(\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*"(?:, )?)+)\} (\S+)$/.exec(line) ?? [];
    if (name === undefined) throw new Error(`no sample: ${line}`);
    samples.set(`${name}{${labels}}`, Number(value));
  }
  return samples;
}

it("exports the numbers of counts(), the longest line and the longest run", async () => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  const running = gate();
  lab.worker(() => running.passed, { concurrency: 3 });
  await queue.addBulk([...jobs(4, () => "a"), ...jobs(2, () => "b")]);
  await until(async () => (await queue.getDelayedCount()) === 4 && (await queue.getActiveCount()) === 2);
  await queue.pauseKey("c");
  const text = await queue.exportPrometheusMetrics({ env: 'a"b\\c\nd' });
  const samples = samplesOf(text);
  const common = `queue="${queue.name}", env="a\\"b\\\\c\\nd"`;
  expect(samples.get(`x_workers_jobs{${common}, state="active"}`)).toBe(2);
  expect(samples.get(`x_workers_jobs{${common}, state="parked"}`)).toBe(4);
  expect(samples.get(`x_workers_jobs{${common}, state="runnable"}`)).toBe(0);
  expect(samples.get(`x_workers_keys{${common}, state="busy"}`)).toBe(2);
  expect(samples.get(`x_workers_keys{${common}, state="paused"}`)).toBe(1);
  expect(samples.get(`x_workers_keys{${common}, state="waiting"}`)).toBe(2);
  expect(samples.get(`x_workers_keys{${common}, state="limited"}`)).toBe(0);
  expect(samples.get(`x_workers_oldest_waiting_seconds{${common}}`)).toBeGreaterThan(0);
  expect(samples.get(`x_workers_longest_line{${common}}`)).toBe(3);
  expect(samples.get(`x_workers_longest_held_seconds{${common}}`)).toBeGreaterThan(0);
  running.open();
  await finished(queue, 6);
  const idle = samplesOf(await queue.exportPrometheusMetrics());
  expect(idle.get(`x_workers_longest_held_seconds{queue="${queue.name}"}`)).toBe(0);
});

it.each([[{ queue: "x" }], [{ "a-b": "x" }], [{ a: 5 }], ["a"], [null]])("refuses the labels %j", async (labels) => {
  await using lab = await Lab.start();
  const queue = lab.queue();
  await expect(queue.exportPrometheusMetrics(labels as never)).rejects.toThrow("labels must be an object of strings");
});
