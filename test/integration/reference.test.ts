/**
 * Compares the guides' tables with the sources: each option, event and error must be in a table, and the tables list
 * nothing else.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const page = (file: string): string => readFileSync(join(root, "docs", file), "utf8");

/** Returns all sources of a package as one text, so that no test depends on the location of a file. */
function sourcesOf(name: string): string {
  const folder = join(root, "packages", name, "src");
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  return files.map((file) => readFileSync(join(folder, file), "utf8")).join("\n");
}

const [core, leader, workers] = ["redlock-core", "leader", "workers"].map(sourcesOf) as [string, string, string];

/** Returns the members that an interface declares itself. */
function membersOf(source: string, name: string): string[] {
  const [, body] = new RegExp(`^export interface ${name}\\b[^{]*{\\n([^]*?)^}`, "m").exec(source) ?? [];
  if (body === undefined) throw new Error(`no interface ${name}`);
  return [...body.matchAll(/^ {2}(?:readonly )?(\w+)\??:/gm)].map((match) => match[1] ?? "");
}

/** Returns the texts of a union of literals. */
function choicesOf(source: string, name: string): string[] {
  const [, body] =
    new RegExp(`^export type ${name} =([^;]*);`, "m").exec(source.replaceAll(/\/\*\*.*?\*\//g, "")) ?? [];
  if (body === undefined) throw new Error(`no type ${name}`);
  return [...body.matchAll(/"([^"]+)"/g)].map((match) => match[1] ?? "");
}

/** Returns the code names in the first column of the tables of a page, or of one of its sections. */
function tableOf(text: string): string[] {
  const cells = [...text.matchAll(/^\| ([^|]*?) +\|/gm)].map((match) => match[1] ?? "");
  return cells.flatMap((cell) => [...cell.matchAll(/`"?([\w-]+)"?`/g)].map((match) => match[1] ?? ""));
}

const sectionOf = (text: string, title: string): string =>
  text.split(/^## /m).find((section) => section.startsWith(title)) ?? "";

const sorted = (names: Iterable<string>): string[] => [...new Set(names)].sort();

describe("options in the guides", () => {
  it("match the options of a Redlock", () => {
    expect(sorted(tableOf(page("locks/options.md")))).toEqual(sorted(membersOf(core, "RedlockOptions")));
  });

  it("match the options of one acquisition", () => {
    const text = page("locks/options.md");
    for (const name of membersOf(core, "AcquireOptions")) expect(text).toContain(`\`${name}\``);
  });

  it("match the options of an election and its task", () => {
    const text = page("leader/options.md");
    const election = sectionOf(text, "`new LeaderElection");
    expect(sorted(tableOf(election))).toEqual(sorted(membersOf(leader, "LeaderElectionOptions")));
    expect(sorted(tableOf(sectionOf(text, "`election.run")))).toEqual(sorted(membersOf(leader, "TaskOptions")));
  });

  it("match the options of a schedule", () => {
    const text = page("leader/missed-ticks.md");
    const names = [...membersOf(leader, "ScheduleOptions"), ...membersOf(leader, "IntervalOptions")];
    const found = tableOf(text).filter((name) => !choicesOf(leader, "Overlap").includes(name));
    expect(sorted([...found, "overlap"])).toEqual(sorted(names));
    for (const name of choicesOf(leader, "Overlap")) expect(tableOf(text)).toContain(name);
    for (const name of choicesOf(leader, "Catchup")) expect(text).toContain(`\`"${name}"\``);
  });

  it("match the options of an exclusive worker", () => {
    const [table = ""] = page("workers/options.md").split("## ");
    const names = [...membersOf(workers, "ExclusiveOptions"), "lockDuration", "stalledInterval"];
    expect(sorted(tableOf(table))).toEqual(sorted(names));
  });
});

it("the guides name all options of the NestJS module", () => {
  const table = sectionOf(page("nestjs.md"), "Options");
  const names = membersOf(sourcesOf("nestjs"), "CoordinationOptions");
  expect(tableOf(table)).toEqual(names);
});

/** Returns the docstrings of an interface's members, by name. */
function docstringsOf(source: string, name: string): ReadonlyMap<string, string> {
  const [, body = ""] = new RegExp(`^export interface ${name}\\b[^{]*{\\n([^]*?)^}`, "m").exec(source) ?? [];
  const documented = body.matchAll(/\/\*\*((?:(?!\*\/)[^])*)\*\/\s*readonly (\w+)\?/g);
  return new Map(
    [...documented].map(([, text = "", member = ""]) => [
      member,
      text.replaceAll(",", "").replaceAll(/\s+\*?\s*/g, " "),
    ]),
  );
}

describe("defaults in the guides match the docstrings", () => {
  it.each([
    ["a Redlock", core, "RedlockOptions", "locks/options.md"],
    ["an election", leader, "LeaderElectionOptions", "leader/options.md"],
    ["a task", leader, "TaskOptions", "leader/options.md"],
    ["a schedule", leader, "ScheduleOptions", "leader/missed-ticks.md"],
    ["an exclusive worker", workers, "ExclusiveOptions", "workers/options.md"],
  ])("of %s", (_what, source, name, file) => {
    const rows = [...page(file).matchAll(/^\| `(\w+)` *\| ([\d,.]+|false|Infinity) *\|/gm)];
    const docstrings = docstringsOf(source, name);
    const differing = rows.filter(([, option = "", value = ""]) => {
      const text = docstrings.get(option);
      return text !== undefined && !new RegExp(`\\b${value.replaceAll(",", "")}\\b`).test(text);
    });
    expect(rows.filter(([, option = ""]) => docstrings.has(option)).length).toBeGreaterThan(0);
    expect(differing.map(([row]) => row)).toEqual([]);
  });
});

/** Returns the text inside the bracket that closes at `end`. */
function insideOf(source: string, end: number): string {
  let depth = 0;
  for (let at = end; at >= 0; at -= 1) {
    if ("}])".includes(source[at] ?? "")) depth += 1;
    if ("{[(".includes(source[at] ?? "") && --depth === 0) return source.slice(at + 1, end);
  }
  throw new Error("a bracket is not opened");
}

describe("defaults in the docstrings match the code", () => {
  /** Returns the literal that a docstring may write instead of the name of a constant. */
  function literalOf(source: string, text: string): string | undefined {
    const [, named] = new RegExp(`^(?:export )?const ${text}(?:: [^=]*)? = ([^;]*);`, "m").exec(source) ?? [];
    const literal = (named ?? text).replaceAll(/(?<=\d)_(?=\d)/g, "").replace("Number.POSITIVE_INFINITY", "Infinity");
    return /^(?:[\d.]+|true|false|Infinity|"[^"]*")$/.test(literal) ? literal : undefined;
  }

  it.each([
    ["redlock-core", 11],
    ["leader", 18],
    ["workers", 9],
    ["semaphore", 2],
    ["effects", 6],
    ["console", 2],
    ["nestjs", 2],
    ["testing", 3],
  ])("of @x/%s", (name, atLeast) => {
    const source = sourcesOf(name);
    const found = [...source.matchAll(/\} satisfies ShapeOf<(?:Omit<)?(\w+)/g)].flatMap((shape) => {
      const docstrings = docstringsOf(source, shape[1] ?? "");
      const flat = insideOf(source, shape.index).replaceAll(/\{[^{}]*\}/g, "");
      const options = flat.matchAll(/(\w+): (?:(?!\w+: )[^])*?\.default\(([^()]*)\)/g);
      return [...options].flatMap(([, option = "", text = ""]) => {
        const value = literalOf(`${source}\n${core}`, text);
        return value === undefined ? [] : [{ option: `${shape[1]}.${option}`, value, told: docstrings.get(option) }];
      });
    });
    const untold = found.filter(({ value, told = "" }) => {
      const isTold = new RegExp(`efault ${value}(?!\\d)|\`"?${value.replaceAll('"', "")}"?\` \\(default\\)`).test(told);
      return !isTold && !told.includes("Default: ");
    });
    expect(untold).toEqual([]);
    expect(found.length).toBeGreaterThanOrEqual(atLeast);
  });
});

describe("events in the guides", () => {
  it("match the events of a Redlock", () => {
    for (const name of membersOf(core, "RedlockEvents")) expect(page("locks/events.md")).toContain(`\`${name}\``);
  });

  it("match the events of an election", () => {
    const [table = ""] = page("leader/events-and-errors.md").split("## ");
    expect(sorted(tableOf(table))).toEqual(sorted(membersOf(leader, "LeaderEvents")));
  });

  it("match the events of a scheduler", () => {
    const section = sectionOf(page("leader/scheduler.md"), "Events");
    for (const name of membersOf(leader, "SchedulerEvents")) expect(section).toContain(`\`${name}\``);
  });

  it("match the events of exclusive workers", () => {
    const section = sectionOf(page("workers/operating.md"), "Events");
    for (const name of membersOf(workers, "WorkerEvents")) expect(section).toContain(`\`${name}\``);
  });
});

describe("members in the guides", () => {
  /**
   * Returns the public members of a class: names at the beginning of a line of its body that are neither private nor
   * symbols.
   */
  function classMembersOf(source: string, name: string): string[] {
    const [, body = ""] = new RegExp(`^export class ${name}\\b[^{]*{\\n([^]*?)^}`, "m").exec(source) ?? [];
    return [...body.matchAll(/^ {2}(?:readonly |async |get )*([a-z]\w*)[<(:?]/gm)].map((match) => match[1] ?? "");
  }

  it("match the members of a Redlock", () => {
    const table = sectionOf(page("locks/api.md"), "`Redlock`").replaceAll(/\([^)]*\)/g, "");
    const documented = tableOf(table).filter((name) => name !== "new");
    expect(documented.length).toBeGreaterThan(7);
    expect(documented.filter((name) => !classMembersOf(core, "Redlock").includes(name))).toEqual([]);
  });

  it("match the members of a lock", () => {
    const table = sectionOf(page("locks/api.md"), "`Lock`").replaceAll(/\([^)]*\)/g, "");
    expect(tableOf(table).filter((name) => !classMembersOf(core, "Lock").includes(name))).toEqual([]);
    expect(tableOf(table)).toContain("fencingToken");
  });

  it("match the members of a term", () => {
    const table = page("leader/term.md").replaceAll(/\([^)]*\)/g, "");
    const [, body = ""] = /^export interface LeaderTerm\b[^{]*{\n([^]*?)^}/m.exec(leader) ?? [];
    const members = [...body.matchAll(/^ {2}(?:readonly )?(\w+)[<(:]/gm)].map((match) => match[1] ?? "");
    expect(sorted(tableOf(table))).toEqual(sorted(members));
  });
});

describe("failures are listed in the guides", () => {
  it.each([
    ["redlock-core", core, "locks/errors.md", "RedlockErrorCode"],
    ["leader", leader, "leader/events-and-errors.md", "LeaderErrorCode"],
    ["workers", workers, "workers/errors.md", "ExclusiveWorkerErrorCode"],
  ] as const)("with the errors of @x/%s and their codes", (_name, source, file, codes) => {
    const text = page(file);
    const own = [...source.matchAll(/^export class (\w+Error) extends (?:Redlock|Leader|ExclusiveWorker)Error\b/gm)];
    const names = own.map((match) => match[1] ?? "");
    expect(names.length).toBeGreaterThan(2);
    for (const name of [...names, ...choicesOf(source, codes)]) expect(text).toContain(`\`${name}\``);
  });

  it.each([
    ["a lock is lost", core, "locks/errors.md", "Reasons", "LockLossReason"],
    ["a term ends", leader, "leader/events-and-errors.md", "Why a term ended", "TermEndReason"],
  ] as const)("with the reasons why %s", (_what, source, file, section, type) => {
    const found = tableOf(sectionOf(page(file), section)).filter((name) => name !== "too-short" && name !== "reason");
    expect(sorted(found)).toEqual(sorted(choicesOf(source, type)));
  });

  it.each([
    ["a Redlock", core, "locks/operating.md", "Checking a deployment", "FindingCode"],
    ["a worker", workers, "workers/operating.md", "Checking a queue's workers", "WorkerFindingCode"],
  ])("with the findings of check() of %s", (_what, source, file, section, type) => {
    const found = tableOf(sectionOf(page(file), section)).filter((name) => name !== "code");
    expect(sorted(found)).toEqual(sorted(choicesOf(source, type)));
  });

  it("with the fields of a vote", () => {
    expect(sorted(tableOf(sectionOf(page("locks/errors.md"), "Votes")))).toEqual(sorted(membersOf(core, "Vote")));
  });
});
