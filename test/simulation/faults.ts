/** Strikes with the faults of a setting, at random times and right after delicate events. */

import type { Link, Machine, Server, World } from "../../packages/testing/src/world.ts";
import type { Setting } from "./setting.ts";

/** A process that can be killed and is then replaced by another process. */
export interface Victim {
  readonly machine: Machine;
  readonly links: readonly Link[];
  kill(): void;
}

export class Faults {
  readonly #world: World;
  readonly #setting: Setting;
  readonly #servers: readonly Server[];
  readonly #victims: () => readonly Victim[];
  readonly #forgetful: readonly Server[];
  /** Called when a node is about to lose some or all of its data. */
  onLoss: () => void = () => undefined;

  /** `forgetful`: the servers that may lose data. Default: all servers. */
  constructor(
    world: World,
    setting: Setting,
    servers: readonly Server[],
    victims: () => readonly Victim[],
    forgetful: readonly Server[] = servers,
  ) {
    this.#forgetful = forgetful;
    this.#world = world;
    this.#setting = setting;
    this.#servers = servers;
    this.#victims = victims;
  }

  start(): void {
    if (this.#setting.faults.size === 0) return;
    const next = (): void => {
      if (this.#world.isQuiet) return;
      this.#strike();
      this.#after(next);
    };
    this.#after(next);
    if (this.#setting.faults.has("crash") || this.#setting.faults.has("failover")) this.#keepSnapshots();
  }

  /** Possibly strikes, because a delicate event has just happened at `server` or in `machine`. */
  provoke(at: { readonly server?: Server; readonly machine?: Machine }): void {
    const { random } = this.#world;
    if (this.#world.isQuiet || this.#setting.faults.size === 0 || !random.chance(this.#setting.provoked)) return;
    this.#world.at(this.#world.nowMs + random.between(0, 3), () => {
      if (!this.#world.isQuiet) this.#strike(at);
    });
  }

  #after(next: () => void): void {
    const { random } = this.#world;
    this.#world.at(this.#world.nowMs - Math.log(1 - random.fraction()) * this.#setting.faultPauseMs, next);
  }

  #keepSnapshots(): void {
    const { random } = this.#world;
    const take = (): void => {
      if (this.#world.isQuiet) return;
      const server = random.pick(this.#servers);
      if (server.isUp) server.takeSnapshot();
      this.#world.at(this.#world.nowMs + random.between(10, 400), take);
    };
    take();
  }

  #strike(at: { readonly server?: Server; readonly machine?: Machine } = {}): void {
    const { random } = this.#world;
    const { maxTtl } = this.#setting;
    const fault = random.pick([...this.#setting.faults]);
    const server = at.server ?? random.pick(this.#servers);
    const victims = this.#victims();
    if (victims.length === 0) return;
    const victim = victims.find(({ machine }) => machine === at.machine) ?? random.pick(victims);
    const link = random.pick(victim.links);
    const shortMs = random.between(1, 0.3 * maxTtl);
    const longMs = random.between(1, 1.3 * maxTtl);
    switch (fault) {
      case "slow":
      case "client stall":
        return;
      case "stall":
        link.stall(random.pick(["up", "down", "both"]), shortMs);
        this.#tell(`${victim.machine.name} – ${link.name} stalls for ${shortMs.toFixed(0)} ms`);
        return;
      case "partition": {
        const cut = victim.links.filter(() => random.chance(0.6));
        for (const each of cut) each.stall("both", shortMs);
        this.#tell(
          `${victim.machine.name} is cut off ${cut.map(({ name }) => name).join(", ")} for ${shortMs.toFixed(0)} ms`,
        );
        return;
      }
      case "reset":
        link.reset(random.chance(0.6) ? random.between(0, 500) : 0);
        this.#tell(`the connection ${victim.machine.name} – ${link.name} breaks`);
        return;
      case "server freeze":
        server.freeze(shortMs);
        this.#tell(`${server.name} is frozen for ${shortMs.toFixed(0)} ms`);
        return;
      case "crash": {
        const drawn = random.pick(["empty", "empty", "rollback", "durable"] as const);
        const amnesia = this.#forgetful.includes(server) ? drawn : "durable";
        const downMs = random.between(0, 150);
        const stepMs = random.chance(0.3) ? random.between(0, 250) : 0;
        // If the clock was set forward in the meantime, kept keys also end too early.
        if ((amnesia !== "durable" || stepMs > 0) && server.isUp) this.onLoss();
        server.crash({ amnesia, downMs, stepMs });
        this.#tell(`${server.name} crashes and is back after ${downMs.toFixed(0)} ms (${amnesia})`);
        return;
      }
      case "failover":
        if (!this.#forgetful.includes(server)) return;
        if (server.isUp) this.onLoss();
        server.failOver();
        this.#tell(`a stale replica takes over from ${server.name}`);
        return;
      case "flush":
        if (!this.#forgetful.includes(server)) return;
        if (server.isUp) this.onLoss();
        server.flush();
        this.#tell(`FLUSHALL on ${server.name}`);
        return;
      case "script flush":
        server.flushScripts();
        this.#tell(`SCRIPT FLUSH on ${server.name}`);
        return;
      case "client freeze":
        victim.machine.freeze(longMs);
        this.#tell(`${victim.machine.name} is frozen for ${longMs.toFixed(0)} ms`);
        return;
      case "suspend":
        victim.machine.suspend(longMs);
        this.#tell(`${victim.machine.name} is suspended for ${longMs.toFixed(0)} ms`);
        return;
      case "client kill":
        victim.kill();
        this.#tell(`${victim.machine.name} is killed`);
        return;
      case "wall clock step": {
        const byMs = random.between(-1, 1) * Math.min(this.#setting.skewMs, 300);
        victim.machine.stepWallClock(byMs);
        this.#tell(`the wall clock of ${victim.machine.name} is set by ${byMs.toFixed(0)} ms`);
        return;
      }
      default:
        throw new TypeError(`unknown fault ${String(fault satisfies never)}`);
    }
  }

  #tell(text: string): void {
    this.#world.record("world", "fault", () => text);
  }
}
