-- Lengthens a reader's part in a read-write lock, if it has not ended.
-- KEYS: 1 name (hash)
-- ARGV: 1 id, 2 ttl_ms (0: only looks; never shortens what the lock has)
-- Returns 1, or 0 when the lease does not hold the lock.
local prefix = string.find(KEYS[1], '{', 1, true) and KEYS[1] or table.concat({'{', KEYS[1], '}'})
local own_end = table.concat({prefix, ':', ARGV[1], ':rwlock_timeout:1'})
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
local left = redis.call('PTTL', own_end)
if left == -2 then
  -- While a cluster moves the slot, its end may be at the other node already, or still. This fails then.
  redis.call('EXISTS', KEYS[1], own_end)
  return 0
end
local ttl = tonumber(ARGV[2])
if ttl > 0 then
  if left < ttl then
    redis.call('PEXPIRE', own_end, ARGV[2])
  end
  if redis.call('PTTL', KEYS[1]) < ttl then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
end
return 1
