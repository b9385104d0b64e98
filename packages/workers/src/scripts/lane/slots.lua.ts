/**
 * Who has a key: the job in its first slot, and in its further ones, where several of a key may run. A part of the lane
 * library, see lane.lua.ts.
 */
export const slots: string = /* lua */ `
  -- Who has the key. A pause that is over has it no more. \`known\`: who stood in the first slot a moment ago.
  local function holderOf(key, known)
    local holder = known
    if known == nil then holder = firstSlot(key) end
    if holder ~= PAUSED then return holder end
    pausedFor(key)
    return firstSlot(key)
  end

  -- The number of the slot in which id has the key, or nil. The first is 0.
  local function slotOf(id, key)
    if firstSlot(key) == id then return 0 end
    local slots = isShared(key) and call('HGETALL', furtherSlots(key)) or {}
    for i = 1, #slots, 2 do
      if slots[i + 1] == id then return tonumber(slots[i]) end
    end
  end

  -- Forgets the further slots whose jobs are gone. Which ones are taken, and how many?
  local function takenSlots(key)
    local slots, taken, count = call('HGETALL', furtherSlots(key)), {}, 0
    for i = 1, #slots, 2 do
      if holds(slots[i + 1], key) then taken[tonumber(slots[i])], count = slots[i + 1], count + 1
      else call('HDEL', furtherSlots(key), slots[i]) end
    end
    return taken, count
  end

  -- Keys that as many jobs had as may when this script looked, and still have.
  local allTaken = {}

  -- The number of the slot that the next job has; nil if as many jobs have the key as may. Where operators have lowered
  -- that, more may have it.
  local function freeSlot(key, isFirstTaken)
    if not isFirstTaken and not policyOf(key) then return 0 end
    if not isShared(key) then return not isFirstTaken and 0 or nil end
    if allTaken[key] then return end
    local taken, count = takenSlots(key)
    if count + (isFirstTaken and 1 or 0) >= slotCount(key) then
      allTaken[key] = true
      return
    end
    if not isFirstTaken then return 0 end
    local number = 1
    while taken[number] do number = number + 1 end
    return number
  end

  -- Who has the key, in the order of the slots. The first is '' if nobody does. Jobs that are gone have no further one.
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

  -- Is the key's first slot a job's? One that is gone has it no more.
  local function isFirstTaken(key)
    local holder = firstSlot(key)
    return isJob(holder) and holds(holder, key)
  end

  -- Have others all slots of the key, or is it paused? \`holder\`: who stands in the first one. \`atFirst\`: if that job
  -- is active, it has the key. Whoever is parked for it looks more closely when it is judged again.
  local function isBusy(key, holder, atFirst)
    if holder == PAUSED then return true end
    local isActive = atFirst and isJob(holder) and call('EXISTS', P .. holder .. ':lock') == 1
    return not freeSlot(key, isActive or (isJob(holder) and holds(holder, key)))
  end

  local function has(id, key, holder)
    return holder == id or (isShared(key) and slotOf(id, key) ~= nil)
  end

  local function seat(id, key)
    if isShared(key) then
      if slotOf(id, key) then return end
      if isFirstTaken(key) then return call('HSET', furtherSlots(key), freeSlot(key, true), id) end
    end
    call('HSET', HOLDERS, key, id)
  end

  -- If id has the key, its slot is free from now on: returns the key.
  local function unseat(id, key)
    local slot = slotOf(id, key)
    if not slot then return end
    allTaken[key] = nil
    if slot == 0 then call('HSET', HOLDERS, key, NEXT) else call('HDEL', furtherSlots(key), slot) end
    return key
  end

  -- Is there a job that was given a slot of the key and waits to be taken?
  local function isAwaited(key)
    local id = isShared(key) and call('HGET', CHOSEN, key)
    if not id then return false end
    local isTaken = id ~= FETCHED and call('EXISTS', P .. id .. ':lock') == 1
    if not isTaken and slotOf(id, key) and holds(id, key) then return true end
    call('HDEL', CHOSEN, key)
    return false
  end

  -- Have more jobs the key than may, because operators have lowered that? Another one that waits to be taken does not
  -- count: it comes after id.
  local function isOver(id, key)
    if not policyOf(key) or not isShared(key) then return false end
    local _, count = takenSlots(key)
    if isFirstTaken(key) then count = count + 1 end
    if count <= slotCount(key) then return false end
    local chosen = call('HGET', CHOSEN, key)
    if chosen and chosen ~= id and isAwaited(key) then count = count - 1 end
    return count > slotCount(key)
  end

  -- The key is not free for everybody, though a slot is.
  local function mark(key, why)
    if not isShared(key) or not isFirstTaken(key) then call('HSET', HOLDERS, key, why) end
  end

  -- Nobody stands in line for the key.
  local function forget(key)
    if isShared(key) and isFirstTaken(key) then return end
    local taken, policy = takenSlots(key), policyOf(key)
    local isTaken = next(taken) ~= nil
    -- It was removed when further slots were taken.
    if policy and not isTaken and next(policy) == nil then
      call('HDEL', HOLDERS, key .. '\\31')
      policy, POLICIES[key] = false, false
    end
    if policy or isTaken then call('HSET', HOLDERS, key, NEXT) else call('HDEL', HOLDERS, key) end
  end
`;
