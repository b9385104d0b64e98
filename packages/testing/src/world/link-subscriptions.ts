/**
 * The subscriptions of a client on one server. Like an adapter, it subscribes again after each reconnection. Messages
 * are delivered first in, first out.
 */
import type { Machine } from "./machine.ts";
import type { Server } from "./server.ts";

interface LinkSubscription {
  readonly channel: string;
  readonly listener: (message: string) => void;
  readonly onGap: (() => void) | undefined;
  leave: () => void;
  isStopped: boolean;
}

/** The part of a link that its subscriptions use. */
interface SubscribedLink {
  readonly machine: Machine;
  readonly server: Server;
  isClosed(): boolean;
  /** Returns when a message that is sent now arrives. */
  arrival(direction: "up" | "down"): number;
}

export class LinkSubscriptions {
  readonly #link: SubscribedLink;
  readonly #all = new Set<LinkSubscription>();
  /** When the last message arrives. */
  #lastMs = 0;

  constructor(link: SubscribedLink) {
    this.#link = link;
  }

  subscribe(channel: string, listener: (message: string) => void, onGap?: () => void): Promise<() => void> {
    const subscription: LinkSubscription = { channel, listener, onGap, leave: () => undefined, isStopped: false };
    this.#all.add(subscription);
    return new Promise((resolve) => {
      this.#enrol(subscription, () =>
        resolve(() => {
          subscription.isStopped = true;
          this.#all.delete(subscription);
          this.#link.machine.world.at(this.#link.arrival("up"), () => subscription.leave());
        }),
      );
    });
  }

  /** Ends the subscriptions on the server. */
  leave(): void {
    for (const subscription of this.#all) subscription.leave();
  }

  close(): void {
    this.leave();
    this.#all.clear();
  }

  /** Subscribes again after the connection was lost. */
  enrolAgain(): void {
    for (const subscription of this.#all) this.#enrolAgain(subscription);
  }

  /** Ends the subscriptions on the server, and subscribes again after a short time for each. */
  reset(): void {
    const { world } = this.#link.machine;
    for (const subscription of this.#all) {
      subscription.leave();
      world.at(world.nowMs + world.random.between(20, 200), () => this.#enrolAgain(subscription));
    }
  }

  #enrolAgain(subscription: LinkSubscription): void {
    this.#enrol(subscription, () => {
      if (!subscription.isStopped) subscription.onGap?.();
    });
  }

  /** Subscribes as soon as the server can be reached. */
  #enrol(subscription: LinkSubscription, confirmed: () => void): void {
    const link = this.#link;
    const { machine, server } = link;
    const { world } = machine;
    world.at(link.arrival("up"), () => {
      if (subscription.isStopped || link.isClosed()) return;
      if (!server.isUp || server.isFrozen) {
        world.at(world.nowMs + 100, () => this.#enrol(subscription, confirmed));
        return;
      }
      subscription.leave();
      subscription.leave = server.subscribe(subscription.channel, {
        receive: (message) => {
          this.#lastMs = Math.max(this.#lastMs, link.arrival("down"));
          world.at(this.#lastMs, () => {
            if (!link.isClosed() && !subscription.isStopped) {
              machine.deliver("message", () => subscription.listener(message));
            }
          });
        },
      });
      world.at(link.arrival("down"), () => machine.deliver("message", confirmed));
    });
  }
}
