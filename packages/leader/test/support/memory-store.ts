/** One node's register and mailbox in memory, for the logic of a term. register.test.ts tests the real store. */
import { type Clock, systemClock } from "@x/redlock-core";
import {
  isNewer,
  type RegisterAnswer,
  type RegisterStore,
  type Version,
  type Write,
} from "../../src/scheduler/register-store.ts";

export class MemoryStore {
  readonly fields: Map<string, string>;
  readonly mail = new Map<string, string>();
  readonly writes: Write[] = [];
  version: Version = { term: 0, step: 0 };
  promised = 0;
  /** Called before each write takes effect. If the function throws, the node does not answer. */
  before: (write: Write) => Promise<void> | void = () => undefined;
  readonly ledger: { readonly quorum: number; readonly nodeCount: number; readonly clock: Clock };

  constructor(fields: readonly (readonly [string, string])[] = [], clock: Clock = systemClock) {
    this.fields = new Map(fields);
    this.ledger = { quorum: 1, nodeCount: 1, clock };
  }

  get asStore(): RegisterStore {
    return this as unknown as RegisterStore;
  }

  /** Returns the lines of each write so far whose fields begin with `prefix`. */
  said(prefix: string): readonly (readonly [string, string])[] {
    return this.writes.flatMap(({ fields }) =>
      fields.flatMap((field, at) =>
        at % 2 === 0 && field.startsWith(prefix) ? [[field, fields[at + 1] ?? ""] as const] : [],
      ),
    );
  }

  cover(): void {
    // Nothing expires.
  }

  promise(term: number): Promise<readonly RegisterAnswer[]> {
    const answer = this.#answer(term);
    this.promised = Math.max(this.promised, term);
    return Promise.resolve([{ ...answer, fields: [...this.fields] }]);
  }

  poll(term: number): Promise<readonly RegisterAnswer[]> {
    return Promise.resolve([this.#answer(term)]);
  }

  async write(write: Write): Promise<readonly RegisterAnswer[]> {
    await this.before(write);
    if (write.version.term < this.promised) return [this.#answer(write.version.term)];
    for (let at = 0; at < write.drops.length; at += 2) {
      const field = write.drops[at] ?? "";
      if (this.mail.get(field) === write.drops[at + 1]) this.mail.delete(field);
    }
    if (isNewer(write.version, this.version)) {
      this.writes.push(write);
      this.version = write.version;
      for (let at = 0; at < write.fields.length; at += 2) {
        const [field = "", line = ""] = write.fields.slice(at, at + 2);
        if (line === "") this.fields.delete(field);
        else this.fields.set(field, line);
      }
    }
    return [this.#answer(write.version.term)];
  }

  tooFew(): Error {
    return new Error("silent");
  }

  #answer(term: number): RegisterAnswer {
    const mail = [...this.mail];
    return {
      node: "n",
      isStale: term < this.promised,
      promised: this.promised,
      wrong: "",
      aheadMs: 0,
      version: this.version,
      process: "1",
      isWhole: true,
      mail,
      fields: [],
    };
  }
}
