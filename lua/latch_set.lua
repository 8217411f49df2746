-- Shuts a latch that is open, until so many counts were made.
-- KEYS: 1 name
-- ARGV: 1 counts, 2 ttl_ms (0: without an end), 3 publish verb, 4 channel
-- Returns {1, counts left, pttl}; the first is 0 if the latch was shut already: then nothing has changed.
if left > 0 then
  return state(0)
end
left = tonumber(ARGV[1])
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
-- To Redisson's waiters it says that the latch is shut.
redis.pcall(ARGV[3], ARGV[4], '1')
return state(1)
