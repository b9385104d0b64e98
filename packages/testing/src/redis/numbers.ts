/** Numbers in the arguments of the simulated Redis: integers, ranks and limits of scores. */
import { ReplyError } from "./reply.ts";

export function integer(text: string | undefined): number {
  if (text === undefined || !/^-?\d+$/.test(text)) throw new ReplyError("ERR value is not an integer or out of range");
  return Number(text);
}

export function rank(text: string, length: number): number {
  const index = integer(text);
  return index < 0 ? length + index : index;
}

export function isBelow(score: number, limit: string): boolean {
  if (limit === "+inf") return true;
  return limit.startsWith("(") ? score < Number(limit.slice(1)) : score <= Number(limit);
}

export function isAbove(score: number, limit: string): boolean {
  if (limit === "-inf") return true;
  return limit.startsWith("(") ? score > Number(limit.slice(1)) : score >= Number(limit);
}
