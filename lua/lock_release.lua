-- Frees the lock if this lease holds it, and tells those who wait. With keep_ms it stays locked for that long at most,
-- and ends by itself: nobody is told, since nothing is free yet.
-- KEYS: 1 name
-- ARGV: 1 id, 2 publish verb, 3 channel of the lock, 4 keep_ms (0: none; never lengthens what the lock has)
-- Returns {1, receivers of the message}, or {0, 0} when the lease does not hold the lock.
if ARGV[4] ~= '0' then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return {0, 0}
  end
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
  return {1, 0}
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
-- The lock is free whatever becomes of the message: waiters have their timers.
local receivers = redis.pcall(ARGV[2], ARGV[3], '0')
if type(receivers) ~= 'number' then
  receivers = 0
end
return {1, receivers}
