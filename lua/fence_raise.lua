-- Lifts the fencing counter to a token that other servers gave, while the lease is held here.
-- KEYS: 1 name, 2 token (fencing counter)
-- ARGV: 1 id, 2 end (what the counter must reach), 3 retention_ms of the counter (0: for ever)
-- Returns 1, or 0 when the lease does not hold the lock.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if last < tonumber(ARGV[2]) then
  if ARGV[3] == '0' then
    redis.call('SET', KEYS[2], ARGV[2])
  else
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  end
end
return 1
