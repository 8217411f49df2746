-- Frees the lock if this lease holds it, and gives it to the first in the queue, or tells those who wait. A lease that
-- waits in the queue leaves it. With keep_ms the lock stays locked for that long at most, and ends by itself. Of an
-- election, what the leader said is deleted, and those who observe are told.
-- KEYS: 1 name, 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 publish verb, 3 channel of the lock, 4 keep_ms (0: none; never lengthens what the lock has), 5 retention_ms of the counter (0: for ever), 6 entry (optional: it has queued), 7 granted (optional: 1, this lease was granted by message), 8 leader (optional: the key of what the leader says), 9 channel of the leader
-- Returns {1, receivers of the message on the channel}, or {0, 0} when the lease does not hold the lock. A third number says how many in the queue were gone and passed over, if any were.
local entry = KEYS[3] and ARGV[6] ~= '' and ARGV[6]
local keeps = ARGV[4] ~= '0'
local held
if keeps then
  held = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
else
  held = redis.pcall('HDEL', KEYS[1], ARGV[1])
end
if ARGV[8] then
  -- What another leader said stays. If this fails, those who observe find out by themselves.
  local said = redis.pcall('GET', ARGV[8])
  if type(said) == 'string' and string.match(said, '^%S+') == ARGV[1] then
    redis.pcall('DEL', ARGV[8])
    redis.pcall(ARGV[2], ARGV[9], '0')
  end
end
-- The name counts twice: one is the queue alone. While a cluster moves the slot, it refuses to look for what is gone.
local left = held == 1 and not keeps and redis.pcall('EXISTS', KEYS[1], KEYS[1], KEYS[3] or KEYS[1])
if left == 0 or type(left) == 'table' then
  -- The lock is free whatever becomes of the message: waiters have their timers.
  local receivers = redis.pcall(ARGV[2], ARGV[3], '0')
  return {1, type(receivers) == 'number' and receivers or 0}
end

local pump, tell_head, leave = queue()
local function reply(held, receivers)
  -- The list ends before a nil.
  return {held, receivers, passed > 0 and passed or nil}
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

if left > 1 then
  -- Somebody made the hash by hand, and it has other fields.
  return reply(1, 0)
end
-- Redisson's waiters listen to the channel and are in no queue. Every second turn is open to them.
local count = ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local is_open = ARGV[7] == '1' and redis.call('PUBSUB', count, ARGV[3])[2] > 0
if not is_open and pump() then
  return reply(1, 0)
end
local receivers = redis.pcall(ARGV[2], ARGV[3], '0')
if is_open then
  tell_head()
end
return reply(1, type(receivers) == 'number' and receivers or 0)
