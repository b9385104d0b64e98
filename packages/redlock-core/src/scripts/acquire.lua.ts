/**
 * The rule for a grant: `acquire(first, count, token, ballot, waiter, ttl, note)` votes on one attempt.
 * The vote grants all resources or none. A grant never shortens an expiry, because it only replaces a missing key or a
 * reservation.
 *
 * - `first`: index in KEYS of the first lock. The other locks follow, then their notes.
 * - `waiter`: member of the lines (hand-over.lua.ts), or only its place if the attempt does not wait.
 * - `ttl`: lease in ms.
 * - `note`: text for observers. Nil without a note; KEYS then contains no keys of notes.
 *
 * `{k}:note` contains the note of a grant as `<token> <fencing token> <node's time in µs> <note>`, for `ttl` ms. The
 * note describes the lock only while the lock's key has the same token, because the attempt may reach no quorum, and
 * notes are neither prolonged nor deleted.
 *
 * Replies:
 * - 1: granted. Every lock key holds the token, and every register at least the ballot. A node alone replies the number
 *   of the grant instead.
 * - {0, index, pttl, ms, about}: refused. The resource of this index is held, or has an earlier waiter. The member is
 *   now in its line. The lock's key expires in `pttl` ms (-1: never). Without a message, the waiter asks again after
 *   `ms`. `about` is Redis' error for a key of another type, or the client ID of a holder with a name. Otherwise it is
 *   missing.
 * - {2, ballot}: stale. A register contains this ballot, which is not below the proposed ballot.
 * - {3}: ahead. The ballot is too far above both the node's time and the registers.
 */
import { CLAMP_US } from "../rules/ballot.ts";
import { CLIENT_IN_LUA, HAS_CLIENT, IS_OURS, isClient } from "../rules/token.ts";
import { isMember, placeOf, startOfLine } from "./hand-over.lua.ts";
import { isTokenText, noToken } from "./number.lua.ts";

/** First element of a refusal. */
const REFUSED = { held: 0, stale: 2, ahead: 3 } as const;

/** The refusal of one node. */
export type NodeRefusal =
  | {
      readonly kind: "held";
      /** Index of the resource that is held, or that has an earlier waiter. */
      readonly index: number;
      /** Milliseconds until the holder's key expires; -1 if never. */
      readonly holderTtlMs: number;
      /** Milliseconds after which a waiter asks again; Infinity if unknown. */
      readonly askAgainMs: number;
      /** Redis' error if the key has another type. */
      readonly wrongType?: string | undefined;
      /** Client ID of the holder, if the holder has a name. */
      readonly client?: string | undefined;
    }
  | { readonly kind: "stale"; readonly storedToken: number }
  | { readonly kind: "ahead" };

/** Parses a reply. Returns undefined for a grant, and for a reply of another form. */
export function nodeRefusalOf(value: unknown): NodeRefusal | undefined {
  if (!Array.isArray(value)) return undefined;
  const [code, ...facts] = value as readonly unknown[];
  if (code === REFUSED.ahead) return { kind: "ahead" };
  if (code === REFUSED.stale) return { kind: "stale", storedToken: Number(facts[0]) };
  if (code !== REFUSED.held) return undefined;
  const [index, holderTtlMs, askAgainMs, about] = facts;
  return {
    kind: "held",
    index: Number(index),
    holderTtlMs: Number(holderTtlMs),
    askAgainMs: Number(askAgainMs) < 0 ? Number.POSITIVE_INFINITY : Number(askAgainMs),
    ...(typeof about === "string" ? aboutHolder(about) : {}),
  };
}

function aboutHolder(about: string): { readonly wrongType: string } | { readonly client: string } {
  return isClient(about) ? { client: about } : { wrongType: about };
}

export const acquire: string = /* lua */ `
local function mayTake(key, waiter)
  local value = valueOf(key)
  if not value then
    local head = isWaiting and headOf(key)
    if not head or ${placeOf("waiter")} <= ${placeOf("head")} then return true end
    if ${isMember("waiter")} then enrol(key, waiter, tonumber(grantTtl)) end
    handOver(key, waiter)
    value = valueOf(key)
    if not value then return true end
  end
  local reserved = reservedFor(value)
  return reserved and ${placeOf("waiter")} <= ${placeOf("reserved")}
end

local function deny(first, count, index, waiter)
  local key = KEYS[first + index]
  local pttl = call('PTTL', key)
  if ${isMember("waiter")} then
    for i = first, first + count - 1 do
      if i == first + index then enrol(KEYS[i], waiter, pttl)
      else withdraw(KEYS[i], waiter) end
    end
  end
  local value = valueOf(key) or ''
  local about = string.match(value, '^WRONGTYPE.*')
  if ${IS_OURS} and ${HAS_CLIENT} then about = ${CLIENT_IN_LUA} end
  return {${REFUSED.held}, index, pttl, askAgainMs(key, pttl), about}
end

local function refusedBallot(count, ballot)
  local largest = '0000000000000000'
  for at = register, register + count - 1 do
    local stored = raised[ARGV[at]] or seen[at]
    if stored and stored > largest then largest = stored end
  end
  if ballot > limit and tonumber(ballot) > tonumber(largest) + ${CLAMP_US} then return {${REFUSED.ahead}} end
  if largest >= ballot and not ${isTokenText("largest")} then error({err = ${noToken("largest")}}) end
  if largest >= ballot then return {${REFUSED.stale}, largest} end
end

local function acquire(first, count, token, ballot, waiter, ttl, note)
  for i = 0, count - 1 do
    if not mayTake(KEYS[first + i], waiter) then return deny(first, count, i, waiter) end
  end
  local refused = several and refusedBallot(count, ballot)
  if refused then return refused end
  local number = several and 1 or nextNumber()
  for i = first, first + count - 1 do
    call('SET', KEYS[i], token, 'PX', ttl)
    if note then
      local term = several and ballot or string.format('%.0f', number)
      call('SET', KEYS[i + count], token .. ' ' .. term .. ' ' .. now .. ' ' .. note, 'PX', ttl)
    end
    if isWaiting and ${isMember("waiter")} then call('ZREM', lines, ${startOfLine("KEYS[i]")} .. waiter) end
    if several then raise(ARGV[register + i - first], ballot) end
  end
  return number
end
`;
