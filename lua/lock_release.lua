-- Frees the lock if this lease holds it, and gives it to the first in the queue, or tells those who wait. A lease that
-- waits in the queue leaves it. With keep_ms the lock stays locked for that long at most, and ends by itself.
-- KEYS: 1 name, 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 publish verb, 3 channel of the lock, 4 keep_ms (0: none; never lengthens what the lock has), 5 retention_ms of the counter (0: for ever), 6 grain_us (the time is rounded down to it), 7 entry (empty: it never queued), 8 granted (1: this lease was granted by message); from 5 on only with a queue
-- Returns {1, receivers of the message on the channel}, or {0, 0} when the lease does not hold the lock. A third number says how many in the queue were gone and passed over, if any were.
local function reply(held, receivers)
  -- The list ends before a nil.
  return {held, receivers, KEYS[3] and passed > 0 and passed or nil}
end

local entry = KEYS[3] and ARGV[7] ~= '' and ARGV[7]
local keeps = ARGV[4] ~= '0'
local held
if keeps then
  held = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
else
  held = redis.pcall('HDEL', KEYS[1], ARGV[1])
end
if held ~= 1 then
  if entry then
    leave(entry)
  end
  return held == 0 and reply(0, 0) or held
end

if keeps then
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    if KEYS[3] then
      tell_head()
    end
  end
  return reply(1, 0)
end

local others_wait = redis.call('EXISTS', KEYS[1], KEYS[3] or KEYS[1]) > 0
if others_wait and redis.call('EXISTS', KEYS[1]) == 1 then
  -- Somebody made the hash by hand, and it has other fields.
  return reply(1, 0)
end
-- Redisson's waiters listen to the channel and are in no queue. Every second turn is open to them.
local is_open = others_wait and ARGV[8] == '1' and redis.call('PUBSUB', 'NUMSUB', ARGV[3])[2] > 0
if others_wait and not is_open and pump() then
  return reply(1, 0)
end
-- The lock is free whatever becomes of the message: waiters have their timers.
local receivers = redis.pcall(ARGV[2], ARGV[3], '0')
if is_open then
  tell_head()
end
return reply(1, type(receivers) == 'number' and receivers or 0)
