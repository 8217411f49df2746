-- A latch, in the format of Redisson's RCountDownLatch. The library puts this text before the scripts that change a latch or
-- read it. It reads how many counts are left, and defines functions.
-- KEYS: 1 name (string: counts left)
-- ARGV: none
-- Returns an error if the name holds no count, else nothing.
--
-- A latch is open if its key does not exist, or holds 0 or less. Each of the scripts returns {done, counts left, pttl}: pttl is
-- -1 if the latch has no end, and -2 if it does not exist.

local text = redis.call('GET', KEYS[1])
-- Lua also reads numbers with a point or in other bases, which are no counts. Numbers of more digits have gaps.
local left = text and #text < 16 and string.match(text, '^%-?%d+$') and tonumber(text) or nil
if text and not left then
  return redis.error_reply('WRONGTYPE the key holds no count of a latch')
end
left = math.max(left or 0, 0)

-- Returns what is so now.
local function state(done)
  return {done, left, redis.call('PTTL', KEYS[1])}
end
