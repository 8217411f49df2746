-- Lengthens a lease that is still held, and writes its hold count down.
-- KEYS: 1 name
-- ARGV: 1 id, 2 count, 3 ttl_ms (0: only the count; never shortens what the lock has)
-- Returns 1, or 0 when the lease does not hold the lock.
local count = redis.call('HGET', KEYS[1], ARGV[1])
if not count then
  return 0
end
local ttl = tonumber(ARGV[3])
if ttl > 0 and redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
-- The count is for those who look. A server short of memory may refuse it; the lease goes on.
if count ~= ARGV[2] then
  redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
