/** Subscribes to channels of `node:diagnostics_channel`. An error in a listener never reaches the publisher. */
import { subscribe, tracingChannel, unsubscribe } from "node:diagnostics_channel";
import { diag } from "@opentelemetry/api";
import type { EffectsEvents, RelayEvents } from "@x/effects";
import type { LeaderMessages } from "@x/leader";
import type { RedlockEvents } from "@x/redlock-core";
import type { WorkerEvents } from "@x/workers";

type Messages = {
  readonly [Name in keyof LeaderMessages as `x.leader.${Name}`]: LeaderMessages[Name];
} & {
  readonly [Name in keyof RedlockEvents as `x.redlock.${Name}`]: RedlockEvents[Name];
} & {
  readonly [Name in keyof WorkerEvents as `x.workers.${Name}`]: WorkerEvents[Name];
} & {
  readonly [Name in keyof EffectsEvents as `x.effects.${Name}`]: EffectsEvents[Name];
} & {
  readonly [Name in keyof RelayEvents as `x.effects.${Name}`]: RelayEvents[Name];
};

/**
 * Returns a function that stops listening. Without `quietly`, Node would raise an error in `onMessage` as an uncaught
 * exception.
 */
export function listen<Name extends keyof Messages>(
  channel: Name,
  onMessage: (message: Messages[Name]) => void,
): () => void {
  const listener = (message: unknown): void => quietly(() => onMessage(message as Messages[Name]));
  subscribe(channel, listener);
  return () => {
    unsubscribe(channel, listener);
  };
}

/**
 * Subscribes to the start and the end of traced calls; `ends` is also called for a call that fails. Returns a function
 * that stops listening.
 */
export function listenToCalls<Facts extends object>(
  channel: string,
  { begins, ends }: { readonly begins: (facts: Facts) => void; readonly ends: (facts: Facts) => void },
): () => void {
  const channels = tracingChannel<unknown, Facts>(channel);
  const nothing = (): void => undefined;
  const listeners = {
    start: (facts: Facts): void => quietly(() => begins(facts)),
    end: nothing,
    asyncStart: nothing,
    asyncEnd: (facts: Facts): void => quietly(() => ends(facts)),
    error: nothing,
  };
  channels.subscribe(listeners);
  return () => channels.unsubscribe(listeners);
}

/** Returns a function that calls every function of `stops`. */
export function allOf(stops: readonly (() => void)[]): () => void {
  return () => {
    for (const stop of stops) stop();
  };
}

/** Reports an error of `call` to OpenTelemetry's own log. */
function quietly(call: () => void): void {
  try {
    call();
  } catch (error) {
    diag.error("@x/otel", String(error));
  }
}
