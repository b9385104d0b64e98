/**
 * The jobs that have a key: one in its first slot, and others in further slots if several jobs of a key may run. A part
 * of the lane library, see lane.lua.ts.
 */
export const slots: string = /* lua */ `
  -- Returns the content of the key's first slot. A pause whose time is over ends before. \`known\`: the content a
  -- moment ago.
  local function holderOf(key, known)
    local holder = known
    if known == nil then holder = firstSlot(key) end
    if holder ~= PAUSED then return holder end
    pausedFor(key)
    return firstSlot(key)
  end

  -- Returns the number of the slot in which the job has the key, or nil. The first slot is 0.
  function slotOf(id, key)
    if firstSlot(key) == id then return 0 end
    local slots = isShared(key) and call('HGETALL', furtherSlots(key)) or {}
    for i = 1, #slots, 2 do
      if slots[i + 1] == id then return tonumber(slots[i]) end
    end
  end

  -- Frees further slots whose jobs are gone. Returns the jobs in the other slots by slot number, and the number of
  -- these jobs. While the queue is watched, only the first slots are checked.
  local function takenSlots(key)
    local slots, taken, count = call('HGETALL', furtherSlots(key)), {}, 0
    -- A watched key may have a hundred jobs or more.
    local mostChecked = isWatched() and slotCount(key) + MOST_CHECKED or #slots
    for i = 1, #slots, 2 do
      if i > 2 * mostChecked or holds(slots[i + 1], key) then taken[tonumber(slots[i])], count = slots[i + 1], count + 1
      else call('HDEL', furtherSlots(key), slots[i]) end
    end
    return taken, count
  end

  -- Keys whose slots were all taken when this script last looked, and which \`leaveSlot\` has not freed since.
  local allTaken = {}

  -- Returns the number of the slot for the next job. Nil if all slots are taken. If operators have lowered the number
  -- of slots, more jobs than this number may have the key.
  local function freeSlot(key, isFirstTaken)
    if not isFirstTaken and not policyOf(key) then return 0 end
    if not isShared(key) then return not isFirstTaken and 0 or nil end
    if allTaken[key] then return end
    local taken, count = takenSlots(key)
    if count + (isFirstTaken and 1 or 0) >= capacity(key) then
      allTaken[key] = true
      return
    end
    if not isFirstTaken then return 0 end
    local number = 1
    while taken[number] do number = number + 1 end
    return number
  end

  -- Returns the jobs that have the key, in the order of the slots. The first element is '' if no job has it.
  local function holdersOf(key)
    local found, taken = {}, takenSlots(key)
    local holder = call('HGET', HOLDERS, key)
    if holder and holder ~= PAUSED and holder ~= NEXT then found[1] = holder end
    local numbers = {}
    for number in pairs(taken) do numbers[#numbers + 1] = number end
    table.sort(numbers)
    for i = 1, #numbers do found[#found + 1] = taken[numbers[i]] end
    if not found[1] then found[1] = '' end
    return found
  end

  local function isJob(holder) return holder and holder ~= PAUSED and holder ~= NEXT end

  -- Reports whether a job has the first slot of the key. A job that is gone is not counted.
  local function isFirstTaken(key)
    local holder = firstSlot(key)
    return isJob(holder) and holds(holder, key)
  end

  -- Reports whether the key is paused, or all its slots are taken. \`holder\`: the content of the first slot.
  -- \`atFirst\`: trust that an active job in the first slot has the key. A job that is parked because of this trust is
  -- checked more closely when the job is judged again.
  local function isBusy(key, holder, atFirst)
    if holder == PAUSED then return true end
    local isActive = atFirst and isJob(holder) and call('EXISTS', P .. holder .. ':lock') == 1
    return not freeSlot(key, isActive or (isJob(holder) and holds(holder, key)))
  end

  local function hasSlot(id, key, holder)
    return holder == id or (isShared(key) and slotOf(id, key) ~= nil)
  end

  -- Notes in the key's policy that jobs overlap, or that the next job was chosen while they could. From then on every
  -- job of the key looks at the further slots, even when the queue is no longer watched.
  local function markOverlaps(key)
    local policy = policyOf(key) or {}
    if policy.overlaps then return end
    policy.overlaps = true
    POLICIES[key] = policy
    call('HSET', HOLDERS, key .. '\\31', cjson.encode(policy))
  end

  -- Removes this note when no further slot is taken, unless the queue is watched.
  local function unmarkOverlaps(key)
    local policy = policyOf(key)
    if not policy or not policy.overlaps or isWatched() then return end
    local taken = takenSlots(key)
    if next(taken) ~= nil then return end
    policy.overlaps = nil
    if next(policy) ~= nil then call('HSET', HOLDERS, key .. '\\31', cjson.encode(policy))
    else
      POLICIES[key] = false
      call('HDEL', HOLDERS, key .. '\\31')
    end
    if not isShared(key) then call('HDEL', CHOSEN, key) end
  end

  local function takeSlot(id, key)
    if isShared(key) then
      if slotOf(id, key) then return end
      if isFirstTaken(key) then
        local number = freeSlot(key, true)
        if isWatched() then markOverlaps(key) end
        return call('HSET', furtherSlots(key), number, id)
      end
    end
    call('HSET', HOLDERS, key, id)
  end

  -- Frees the slot of a job. Returns the key if the job had one.
  local function leaveSlot(id, key)
    local slot = slotOf(id, key)
    if not slot then return end
    allTaken[key] = nil
    if slot == 0 then call('HSET', HOLDERS, key, NEXT) else call('HDEL', furtherSlots(key), slot) end
    return key
  end

  -- Reports whether a job was given a slot of the key and waits to be taken.
  local function isAwaited(key)
    local id = isShared(key) and call('HGET', CHOSEN, key)
    if not id then return false end
    local isTaken = id ~= FETCHED and call('EXISTS', P .. id .. ':lock') == 1
    if not isTaken and slotOf(id, key) and holds(id, key) then return true end
    call('HDEL', CHOSEN, key)
    return false
  end

  -- Reports whether more jobs have the key than allowed, because operators have lowered the number. Another chosen job
  -- that waits to be taken is not counted, because the other job comes after this job.
  local function isOver(id, key)
    if not policyOf(key) or not isShared(key) then return false end
    local _, count = takenSlots(key)
    if isFirstTaken(key) then count = count + 1 end
    if count <= capacity(key) then return false end
    local chosen = call('HGET', CHOSEN, key)
    if chosen and chosen ~= id and isAwaited(key) then count = count - 1 end
    return count > capacity(key)
  end

  -- Marks a key that has a free slot and is not free for every job.
  local function mark(key, why)
    if not isShared(key) or not isFirstTaken(key) then call('HSET', HOLDERS, key, why) end
  end

  -- Forgets a key without jobs in line, unless a job or a policy still needs its mark.
  local function forget(key)
    unmarkOverlaps(key)
    if isShared(key) and isFirstTaken(key) then return end
    local taken, policy = takenSlots(key), policyOf(key)
    local isTaken = next(taken) ~= nil
    -- The policy was removed while further slots were taken.
    if policy and not isTaken and next(policy) == nil then
      call('HDEL', HOLDERS, key .. '\\31')
      policy, POLICIES[key] = false, false
    end
    if policy or isTaken then call('HSET', HOLDERS, key, NEXT) else call('HDEL', HOLDERS, key) end
  end
`;
