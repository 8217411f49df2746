-- Frees the lock whoever holds it, or only if the given lease does, and gives it to the first in the queue, or tells
-- those who wait. If the holder led an election, what it said is deleted, and those who observe are told. While a cluster moves the slot, it gets the name alone.
-- KEYS: 1 name, 2 token (fencing counter; optional), 3 queue (optional)
-- ARGV: 1 id, 2 publish verb, 3 channel of the lock, 4 age_us (only if this lease has held it for so long; empty: whoever holds it), 5 retention_ms of the counter (0: for ever), 6 leader (optional: the key of what the leader of an election says), 7 channel of the leader
-- Returns 1, or 0 when there was nothing to free.
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key is a lock of another kind')
end
if ARGV[4] ~= '' then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
  -- The counter is the time of the acquire, or later.
  if ARGV[4] ~= '0' then
    if not KEYS[2] then
      return redis.error_reply('TRYAGAIN the counter is needed')
    end
    local time = redis.call('TIME')
    local taken = tonumber(redis.call('GET', KEYS[2]))
    -- Without the counter it is known only that the acquire was before that ended.
    local age_us = taken and time[1] * 1000000 + time[2] - taken or ARGV[5] * 1000
    if age_us < tonumber(ARGV[4]) then
      return 0
    end
  end
elseif redis.call('HLEN', KEYS[1]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[6] and redis.pcall('DEL', ARGV[6]) == 1 then
  redis.pcall(ARGV[2], ARGV[7], '0')
end
local pump = queue()
-- While a cluster moves the slot, it refuses to make anew what is gone: then it goes to nobody, and the queue stays as it is.
local is_waited_for = KEYS[3] and redis.pcall('EXISTS', KEYS[1]) == 0
if not (is_waited_for and pump()) then
  redis.pcall(ARGV[2], ARGV[3], '0')
end
return 1
