/** The protections of `@x/effects`, each with a patch that removes it and a scene that breaks without it. */
import type { SourcePatch } from "../simulation/sources.ts";
import type { SceneName } from "./scenes.ts";

export interface Mutation {
  readonly protection: string;
  /** The behavior without the protection. */
  readonly without: string;
  readonly scene: SceneName;
  readonly patches: readonly SourcePatch[];
}

const effects = (file: string, find: string, replace: string): SourcePatch => ({
  file: `effects/src/${file}`,
  find,
  replace,
});

export const MUTATIONS: readonly Mutation[] = [
  {
    protection: "inbox",
    without: "every call has an inbox row of its own",
    scene: "a job is executed twice",
    patches: [
      effects(
        "rules/inbox-id.ts",
        "return JSON.stringify(step === undefined ? parts : [...parts, step]);",
        "return JSON.stringify([...parts, step, Math.random()]);",
      ),
    ],
  },
  {
    protection: "fence",
    without: "no resource is claimed",
    scene: "a frozen worker resumes after its job failed",
    patches: [
      effects(
        "options.ts",
        "const resources = fencingToken === 0 ? [] : [...new Set(named)];",
        "const resources: readonly string[] = named.slice(0, 0);",
      ),
    ],
  },
  {
    protection: "token comparison",
    without: "an older token replaces a newer one",
    scene: "a frozen worker resumes after its job failed",
    patches: [effects("rules/sql.ts", " WHERE f.token <= excluded.token", "")],
  },
  {
    protection: "repetition after a lost COMMIT",
    without: "the client's error is passed on",
    scene: "the reply of a COMMIT is lost",
    patches: [
      effects("effects.ts", "if (!canRepeat || attempt > this.#options.retries) {", "if (canRepeat !== undefined) {"),
    ],
  },
  {
    protection: "rows written last",
    without: "enqueue writes each row at once",
    scene: "a transaction depends on one that commits before it",
    patches: [
      effects(
        "effects.ts",
        "this.#store = new SqlStore(this.#database, this.#statements);",
        "this.#store = new SqlStore(this.#database, this.#statements); insertRows = this.#statements.insertRows;",
      ),
      effects("effects.ts", "export class Effects<", "let insertRows = '';\nexport class Effects<"),
      effects(
        "effects.ts",
        "rows.push(rowOf(...job));",
        "void handle.query(insertRows, [JSON.stringify([rowOf(...job)])]);",
      ),
    ],
  },
  {
    protection: "the row's time",
    without: "a job has the time of its delivery",
    scene: "Redis loses its data",
    patches: [effects("outbox-relay.ts", ", timestamp: Number(ms) },", " },")],
  },
  {
    protection: "deletion after the acknowledgement",
    without: "rows leave the outbox before they are added",
    scene: "Redis refuses jobs for a while",
    patches: [
      effects("outbox-relay.ts", "await this.#add(queue, rows);\n", "\n"),
      effects(
        "outbox-relay.ts",
        "await this.#store.settle(rows, this.#options.keepFor > 0);",
        "await this.#store.settle(rows, this.#options.keepFor > 0); await this.#add(queue, rows);",
      ),
    ],
  },
  {
    protection: "term check",
    without: "a leader that has lost its term adds what it has read",
    scene: "a former leader resumes",
    patches: [effects("outbox-relay.ts", "term.assertCurrent();\n", "\n")],
  },
  {
    protection: "one order of claims",
    without: "resources are claimed as they were named",
    scene: "holders claim in opposite order",
    patches: [effects("rules/sql.ts", 'ORDER BY r COLLATE "C"', "")],
  },
];
