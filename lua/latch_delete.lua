-- Deletes a latch, which opens it.
-- KEYS: 1 name
-- ARGV: 1 publish verb, 2 channel
-- Returns {1, 0, -2}; the first is 0 if there was none.
local done = redis.call('DEL', KEYS[1])
if done == 1 then
  -- Redisson says 1, which keeps those who wait with it waiting.
  redis.pcall(ARGV[1], ARGV[2], '0')
end
-- While its slot moves, a master refuses to look for what is gone.
return {done, 0, -2}
