-- Frees the lock if this lease holds it, and gives it to the first in the queue, or tells those who wait. A lease that
-- waits in the queue leaves it. With keep_ms the lock stays locked for that long at most, and ends by itself. Of an
-- election, what the leader said is deleted, and those who observe are told. The library puts take.lua, queue.lua and
-- lock_pass.lua behind this text.
-- KEYS: 1 name, 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 channel of the lock, 3 publish verb (optional; PUBLISH if it is not said), 4 keep_ms (optional; 0: none; never lengthens what the lock has), 5 retention_ms of the counter (optional; 0: for ever, a day if it is not said), 6 entry (optional, or empty: it has not queued), 7 granted (optional; 1: this lease was granted by message), 8 leader (optional; the key of what the leader says), 9 channel of the leader
-- Returns 0 when the lease does not hold the lock, or else 1 and how many received the message on the channel, added up. If some in the queue were gone and passed over, it returns {that, how many those were}.
local keeps = ARGV[4] and ARGV[4] ~= '0'
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
    redis.pcall(ARGV[3], ARGV[9], '0')
  end
end
-- The name counts twice: one is the queue alone. While a cluster moves the slot, it refuses to look for what is gone.
local left = held == 1 and not keeps and redis.pcall('EXISTS', KEYS[1], KEYS[1], KEYS[3] or KEYS[1])
if left == 0 or type(left) == 'table' then
  -- The lock is free whatever becomes of the message: waiters have their timers.
  local receivers = redis.pcall(ARGV[3] or 'PUBLISH', ARGV[2], '0')
  return type(receivers) == 'number' and 1 + receivers or 1
end
