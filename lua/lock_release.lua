-- Frees the lock if this lease holds it, and tells those who wait. With keep_ms it stays locked for that long at most,
-- and ends by itself: nobody is told, since nothing is free yet.
-- KEYS: 1 name, 2 channel
-- ARGV: 1 id, 2 publish verb, 3 keep_ms (optional; never lengthens what the lock has)
-- Returns {1, receivers of the message}, or {0, 0} when the lease does not hold the lock.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
if ARGV[3] then
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return {1, 0}
end
redis.call('DEL', KEYS[1])
-- The lock is free whatever becomes of the message: waiters have their timers.
local receivers = redis.pcall(ARGV[2], KEYS[2], '0')
if type(receivers) ~= 'number' then
  receivers = 0
end
return {1, receivers}
