/** The operators' policies for single keys, which the lane stores. The methods are described at `QueueOperators`. */
import { messageOf, quote } from "@x/redlock-core/kit";
import { KEY } from "../rules/entity-key.ts";
import { parsePolicies } from "../scripts/operator-replies.ts";
import type { OperatorLane } from "./operator-lane.ts";
import type { ListOptions } from "./queue-operators.ts";
import { checkPolicy, type KeyPolicy, parsePolicy, resolvePolicy, rulesOf } from "./rules/key-policy.ts";
import { LIST } from "./rules/operator-arguments.ts";
import { readRegistry } from "./worker-registry.ts";

const LIST_PAGE = 500;

interface KeyPoliciesParts {
  readonly lane: OperatorLane;
  /** Called with the error of each damaged policy that a list leaves out. */
  readonly onError: (error: Error) => void;
}

export class KeyPolicies {
  readonly #parts: KeyPoliciesParts;

  constructor(parts: KeyPoliciesParts) {
    this.#parts = parts;
  }

  async set(key: string, given: KeyPolicy): Promise<void> {
    KEY.of("key", key);
    const policy = resolvePolicy(given);
    const { lane } = this.#parts;
    for (const setup of (await readRegistry(lane)).setups) checkPolicy(policy, rulesOf(setup));
    await lane.operate("setPolicy", key, JSON.stringify(policy));
  }

  async get(key: string): Promise<KeyPolicy | undefined> {
    KEY.of("key", key);
    return parsePolicy(String(await this.#parts.lane.operate("policy", key)));
  }

  async remove(key: string): Promise<boolean> {
    KEY.of("key", key);
    return (await this.#parts.lane.operate("setPolicy", key, "")) === 1;
  }

  async list(options: ListOptions): Promise<Map<string, KeyPolicy>> {
    const { limit } = LIST.resolve(options);
    const found = new Map<string, KeyPolicy>();
    let cursor = "0";
    do {
      const page = parsePolicies(await this.#parts.lane.operate("policies", cursor, LIST_PAGE));
      for (const { key, policy: text } of page.policies) {
        const policy = this.#parse(key, text);
        if (policy !== undefined && found.size < limit) found.set(key, policy);
      }
      cursor = page.cursor;
    } while (cursor !== "0" && found.size < limit);
    return found;
  }

  #parse(key: string, text: string): KeyPolicy | undefined {
    try {
      return parsePolicy(text);
    } catch (error) {
      this.#parts.onError(new TypeError(`key ${quote(key)}: ${messageOf(error)}`));
      return undefined;
    }
  }
}
