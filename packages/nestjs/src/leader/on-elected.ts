/** `@OnElected`: a method that is called when this process becomes the leader. */
import "reflect-metadata";
import type { LeaderTerm } from "@x/leader";
import type { Marker } from "../discovery.ts";
import { instanceMethod } from "../rules/names.ts";

export type TermMethodDecorator = <Method extends (term: LeaderTerm) => unknown>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void;

export const ON_ELECTED: Marker = { key: Symbol("x.nestjs.onElected"), decorator: "@OnElected" };

/**
 * Calls the method with the term each time this process is elected. It may return at once, or work until `term.signal`
 * aborts: the leadership is handed over only when the method has ended.
 *
 * A method that fails hands the leadership over, and this process stays out for the election's cooldown.
 */
export function OnElected(): TermMethodDecorator {
  return (target, key, { value }) =>
    Reflect.defineMetadata(ON_ELECTED.key, true, instanceMethod("@OnElected", { target, key, value }));
}
