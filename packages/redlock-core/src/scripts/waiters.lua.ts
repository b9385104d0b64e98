/**
 * The short form for waiters: a hand-over without the functions of the long form, which take a third of the script's
 * time.
 *
 * While a waiter is in line on the node, the short form serves three kinds of requests, each about one lock:
 * - One release. The lock is reserved for the first waiter.
 * - On a node alone, one waiter. The waiter acquires the lock if it has the reservation.
 * - On a node alone, a release followed by a waiter of the same process. The waiter acquires the lock if nobody is in
 *   line before it. If not, the waiter is enrolled, and the lock is reserved for the first waiter.
 *
 * In any other case the request continues with the long form. The short form has then changed nothing that the long
 * form would not change.
 */
import { codeOf, LETTER, MODE } from "../rules/operation.ts";
import { enrol, placeOf, rangeOfLine, reserve, startOfLine } from "./hand-over.lua.ts";
import { isTokenText, readFloor, readTime } from "./number.lua.ts";

/** An acquisition of a member for one lock, without a note, as `acquireText` writes it. */
const WAITER = "'^A1 (%S+) %d+ (%d+:%S+) (%d+)$'";

/** Sets the variables that `enrol` and `reserve` need. */
export const lineSettings: string = /* lua */ `
  local grantTtl, receivers, waiterTtl = string.match(header, ' (%d+) ([01]) (%d+)$')
  local countsReceivers = receivers == '1'
  waiterTtl = tonumber(waiterTtl)`;

export const waiters: string = /* lua */ `
if isWaiting and (last == 2 or last == 3) then
  local isAlone, first = mode == ${codeOf(MODE.alone)}, mode == ${codeOf(MODE.releases)} and 3 or 4
  local key = KEYS[first]
  local isRelease = byte(ARGV[2]) == ${codeOf(LETTER.releaseOne)}
  local token, member, ttl
  if isAlone and (last == 2 or isRelease and KEYS[first + 1] == key) then
    token, member, ttl = string.match(ARGV[last], ${WAITER})
  end
  local start, isTurn, head
  if token or (isRelease and last == 2 and mode == ${codeOf(MODE.releases)}) then
    local value = try('GET', key)
    start = ${startOfLine("key")}
    if not isRelease then isTurn = value == 'reserved:' .. member
    elseif value == sub(ARGV[2], 2) then
      local text = call('ZRANGEBYLEX', lines, ${rangeOfLine("start")}, 'LIMIT', 0, 1)[1]
      head = text and sub(text, #start + 1)
      isTurn = token and not (head and ${placeOf("head")} <= ${placeOf("member")})
    end
  end
  if isTurn then ${readTime}
    ${readFloor}
    if floor >= now then now = string.format('%.0f', floor + 1) end
    if ${isTokenText("now")} then
      local set = try('SET', key, token, 'PX', ttl)
      if set and not set.err then
        if not isRelease then call('ZREM', lines, start .. member) end
        call('SET', topKey, now)
        return now
      end
    end
  elseif head and (not token or ${placeOf("member")} > ${placeOf("head")}) then ${lineSettings}
    if token then ${readTime}
    end
    ${enrol}
    ${reserve}
    local isDone, isReserved = true, false
    if token then isDone = pcall(enrol, key, member, tonumber(grantTtl)) end
    if isDone then isDone, isReserved = pcall(reserve, key, head, member) end
    if isDone and isReserved then
      if not token then return 1 end
      return {now, 0, 1, {0, 0, tonumber(grantTtl), tonumber(grantTtl)}}
    end
  end
end
`;
