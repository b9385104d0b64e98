/** Elections that stop on signals of their process. */
import { expect, it, onTestFinished } from "vitest";
import { untilAborted, useLab } from "./support/lab.ts";

const lab = useLab();

it("listens to no signal any more when one of them cannot be listened to", async () => {
  const election = lab.candidate("no-listener");
  const refuse = (name: string | symbol): void => {
    if (name === "SIGUSR2") throw new Error("no such listener");
  };
  process.on("newListener", refuse);
  onTestFinished(() => void process.off("newListener", refuse));
  const task = (): void => undefined;
  for (const stopOn of [["SIGUSR1", "SIGUSR2"], ["SIGUSR2"]] as const)
    await expect(election.run(task, { stopOn })).rejects.toThrow("no such listener");
  expect(process.listenerCount("SIGUSR1")).toBe(0);
});

it("refuses names of signals that there are not", async () => {
  const election = lab.candidate("signals");
  const task = (): void => undefined;
  await expect(election.run(task, { stopOn: "SIGTERM" as unknown as [] })).rejects.toThrow(TypeError);
  await expect(election.run(task, { stopOn: ["SIGTREM" as "SIGTERM"] })).rejects.toThrow(
    /stopOn must name signals of this system, got "SIGTREM"/,
  );
});

it("stops all elections on a signal, with one listener for all", async () => {
  const before = process.listenerCount("SIGUSR2");
  const all = Array.from({ length: 12 }, (_, index) => lab.candidate(`usr2-${index}`));
  const runs = all.map((election) => election.run(untilAborted, { stopOn: ["SIGUSR2"] }));
  await expect.poll(() => all.every((election) => election.isLeader())).toBe(true);
  expect(process.listenerCount("SIGUSR2")).toBe(before + 1);
  process.kill(process.pid, "SIGUSR2");
  await Promise.all(runs);
  expect(all.map((election) => election.isLeader())).not.toContain(true);
  expect(process.listenerCount("SIGUSR2")).toBe(before);
});
