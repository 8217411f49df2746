-- Frees the lock if this lease holds it, and tells those who wait.
-- KEYS: 1 name, 2 channel
-- ARGV: 1 id, 2 publish verb
-- Returns {1, receivers of the message}, or {0, 0} when the lease does not hold the lock.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
redis.call('DEL', KEYS[1])
-- The lock is free whatever becomes of the message: waiters have their timers.
local receivers = redis.pcall(ARGV[2], KEYS[2], '0')
if type(receivers) ~= 'number' then
  receivers = 0
end
return {1, receivers}
