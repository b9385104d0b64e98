/** The command `npm run prove`. See `--help`. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { ATTACKS, isNeeded, play, timelineOf } from "./attacks.ts";
import type { Explored } from "./explored.ts";
import { LANE } from "./lane/cases.ts";
import { READ_WRITE_LOCK } from "./read-write/cases.ts";
import { REGISTER } from "./register/cases.ts";
import { readRules } from "./rules.ts";
import { Solver } from "./solver.ts";
import { CHANGES, isProvedWith, theoremsOf } from "./theorems.ts";
import { isNoticed, trace } from "./trace.ts";
import { NOTICED } from "./traced.ts";

const HELP = `npm run prove -- [options]

Proves the lock protocol with Z3, shows what breaks without each protection, and explores the scheduler's register,
the read-write lock and the lane of workers.

  --quick         leaves out the theorems that take longest
  --dump FOLDER   also writes each question there as NNNN.smt2, for another solver, and Z3's answer as NNNN.answer
`;

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    dump: { type: "string" },
    help: { type: "boolean", default: false },
  },
});

const print = (text: string): void => void process.stdout.write(`${text}\n`);

if (values.help) print(HELP);
else await run();

async function run(): Promise<void> {
  const rules = readRules();
  await using solver = new Solver();
  if (values.dump !== undefined) dumpInto(solver, resolve(process.env["INIT_CWD"] ?? ".", values.dump));
  let failed = 0;
  const judge = (isRight: boolean, text: string): void => {
    if (!isRight) failed += 1;
    print(`${isRight ? "ok    " : "FAILED"}  ${text}`);
  };

  for (const { name, isSlow, check } of theoremsOf(rules)) {
    if (values.quick && isSlow === true) continue;
    const before = solver.effort;
    const failures = await check(solver);
    const { questions, cpuMs } = solver.effort;
    const seconds = ((cpuMs - before.cpuMs) / 1_000).toFixed(1);
    judge(failures.length === 0, `${name} (${questions - before.questions} questions, ${seconds} s)`);
    for (const failure of failures) print(`        ${failure}`);
  }
  for (const attack of ATTACKS) {
    const broken = await play(solver, attack, { rules });
    const kept = await play(solver, attack, { rules, isRemoved: false });
    const isRight = broken.answer === "sat" && kept.answer === "unsat" && (await isNeeded(solver, attack, rules));
    print("");
    judge(isRight, timelineOf(attack, broken));
  }
  print("");
  for (const change of CHANGES) {
    const isProved = await isProvedWith(solver, change);
    judge(
      isProved === (change.isProved === true),
      `${change.name}: ${isProved ? "proved" : "not proved, as expected"}`,
    );
  }
  for (const [nodeCount, runs] of [
    [3, 700],
    [4, 150],
    [5, 150],
  ] as const) {
    const { problems, steps } = await trace({ seed: "trace", runs: values.quick ? runs / 10 : runs, nodeCount });
    judge(problems.size === 0, `every step of the code on ${nodeCount} nodes is one of the model: ${countsOf(steps)}`);
    for (const [problem, example] of problems) print(`        ${problem}: ${example}`);
  }
  for (const protection of Object.keys(NOTICED)) {
    judge(await isNoticed(protection), `the trace notices the mutation: ${protection}`);
  }
  for (const each of [REGISTER, READ_WRITE_LOCK, LANE]) await explore(each, judge);
  print(failed === 0 ? "everything is as expected" : `${failed} FAILED`);
  process.exitCode = failed === 0 ? 0 : 1;
}

/** Visits the states of a protocol, then without each of its rules. */
async function explore(
  { name, cases, rules }: Explored,
  judge: (isRight: boolean, text: string) => void,
): Promise<void> {
  for (const each of cases) {
    const { states, isCut, violation } = await each.explore();
    judge(!isCut && violation === undefined, `${name}, ${each.name}: all ${states} states`);
    if (violation !== undefined) print(`        ${violation.broken}: ${violation.actions.join(", ")}`);
  }
  for (const each of rules) {
    const { violation } = await each.explore();
    judge(violation !== undefined, `${name} without "${each.rule}": ${violation?.broken ?? "nothing breaks"}`);
    for (const action of violation?.actions ?? []) print(`        ${action}`);
  }
}

function countsOf(steps: ReadonlyMap<string, number>): string {
  return [...steps].map(([step, count]) => `${step.replace("n1 ", "a node ")} ${count} times`).join(", ");
}

function dumpInto(solver: Solver, folder: string): void {
  mkdirSync(folder, { recursive: true });
  let count = 0;
  solver.onAnswer = (text, answer) => {
    count += 1;
    const name = join(folder, String(count).padStart(4, "0"));
    writeFileSync(`${name}.smt2`, `(set-logic ALL)\n${text}`);
    writeFileSync(`${name}.answer`, answer);
  };
}
