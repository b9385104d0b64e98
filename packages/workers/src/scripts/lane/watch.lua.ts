/**
 * Counts the starts that exclusion would have prevented, while the queue is *watched*. A part of the lane library, see
 * lane.lua.ts.
 *
 * While the queue is watched, no job waits because its key is busy: the job takes a further slot of the key, however
 * many slots the options allow. Workers can therefore run next to plain workers. The rule is one field of
 * `P lane:holders`, which every script reads, so all workers change with the same command. Without the field the lane
 * is exclusive. A lane with `whenBusy: "merge"` is always exclusive, because two calls could otherwise receive the same
 * jobs.
 *
 * A key whose jobs overlap is marked in its policy (`overlaps`). After the change to exclusive, the mark makes every
 * script count the jobs in further slots, so no job of the key starts until fewer jobs than allowed have it.
 *
 * - `P lane:watched`: hash. `since`, `until`: when the queue was last watched, in ms. `ended`: jobs with keys that
 *   have ended. `overlaps`: starts while too many jobs of a key were running. `outOfOrder`: starts while jobs that
 *   had the key first waited to run again, and none was running.
 * - `P lane:early`: zset of the keys with such starts, scored by their number. At most MOST_COUNTED keys: a new key
 *   replaces the rarest key and takes over its score, so the score of a frequent key is at most too high by that score.
 *
 * Both stay until the queue is watched again.
 */

export const watch: string = /* lua */ `
  -- Counts the start of a job that exclusion would have delayed.
  function countEarly(id, keys)
    -- Returns the number of other jobs that have the key, and whether one of these jobs is running. A job that was just
    -- given a slot, and has not been taken yet, comes after this job.
    local function othersOn(key)
      local others, count, isRunning = takenSlots(key), 0, false
      local chosen = isAwaited(key) and call('HGET', CHOSEN, key)
      if isFirstTaken(key) then others[0] = firstSlot(key) end
      for _, other in pairs(others) do
        if other ~= id and other ~= chosen then
          count = count + 1
          isRunning = isRunning or call('EXISTS', P .. other .. ':lock') == 1
        end
      end
      return count, isRunning
    end

    local function countKey(key)
      local early = P .. 'lane:early'
      if call('ZSCORE', early, key) or call('ZCARD', early) < MOST_COUNTED then return call('ZINCRBY', early, 1, key) end
      local rarest = call('ZPOPMIN', early)
      call('ZADD', early, rarest[2] + 1, key)
    end

    local why
    for i = 1, #keys do
      local count, isRunning = othersOn(keys[i])
      if count >= slotCount(keys[i]) then
        why = (isRunning or why == 'overlaps') and 'overlaps' or 'outOfOrder'
        countKey(keys[i])
      end
    end
    if why then call('HINCRBY', P .. 'lane:watched', why, 1) end
  end
`;
