/** Decorators for the parameters of constructors. They also serve where no types are emitted for Nest to read. */
import { Inject } from "@nestjs/common";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";

type InjectDecorator = ReturnType<typeof Inject>;

/** Injects the `Redlock` of the module. */
export function InjectRedlock(): InjectDecorator {
  return Inject(Redlock);
}

/** Injects the `LeaderElection` of the module; null if the module was given no `election`. */
export function InjectElection(): InjectDecorator {
  return Inject(LeaderElection);
}

/** Injects the `LeaderScheduler` of the module; null if the module was given no `election`. */
export function InjectScheduler(): InjectDecorator {
  return Inject(LeaderScheduler);
}
