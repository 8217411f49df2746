-- Ends the writer or all readers of a read-write lock, or only the given one, and lets in those whose turn it is, or tells
-- those who wait.
-- KEYS: 1 name (hash), 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 publish verb, 3 channel of the lock, 4 age_us (only if this lease has held it for so long; empty: whoever holds it), 5 retention_ms of the counter (0: for ever)
-- Returns 1, or 0 when there was nothing to free.
local function delete_ends(id, levels)
  for level = 1, math.min(tonumber(levels) or 0, 100) do
    -- While a cluster moves the slot, it may be elsewhere. Without the field it counts for nothing.
    redis.pcall('DEL', end_key(id, level))
  end
end

channel, numsub = ARGV[3], ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local mode = mode_now()
local wrong = wrong_kind(mode)
if wrong then
  return wrong
end
if not mode then
  return 0
end
if ARGV[4] ~= '' then
  if mode == 'read' then
    local levels = redis.call('HGET', KEYS[1], ARGV[1])
    if not tonumber(levels) or not reads_for(ARGV[1]) then
      return 0
    end
    delete_ends(ARGV[1], levels)
    redis.call('HDEL', KEYS[1], ARGV[1])
    local is_waited_for = KEYS[3] and redis.call('EXISTS', KEYS[3]) == 1
    -- As in rw_release.lua, also what follows.
    local is_known, other = pcall(live_reader)
    if not is_known or other then
      if is_known and is_waited_for and is_foreign(other) then
        pcall(pump, nil, true)
      end
      return 1
    end
  else
    if redis.call('HEXISTS', KEYS[1], field_of(ARGV[1])) == 0 then
      return 0
    end
    -- The counter is the time of the acquire, or later.
    if ARGV[4] ~= '0' then
      local time = redis.call('TIME')
      local taken = tonumber(redis.call('GET', KEYS[2]))
      -- Without the counter it is known only that the acquire was before that ended.
      local age_us = taken and time[1] * 1000000 + time[2] - taken or ARGV[5] * 1000
      if age_us < tonumber(ARGV[4]) then
        return 0
      end
    end
  end
end
local fields = redis.call('HRANDFIELD', KEYS[1], 100000, 'WITHVALUES')
for i = 1, #fields, 2 do
  delete_ends(fields[i], fields[i + 1])
end
redis.call('DEL', KEYS[1])
local after = KEYS[3] and redis.pcall('EXISTS', KEYS[1]) == 0 and select(2, pump(nil, true))
if after ~= 'write' then
  redis.pcall(ARGV[2], channel, '1')
end
return 1
