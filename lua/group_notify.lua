-- Gives some signals of a group: each of these names gets the same higher number.
-- KEYS: 1 group (sorted set: name -> number of its last signal, and an empty name: the floor)
-- ARGV: 1 retention_ms, 2 publish verb, 3 channel, 4 most (how many names are kept), then the names
-- Returns {number, how many listen}.
--
-- What was signalled up to the floor may be forgotten. The floor is at or below all other numbers.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
-- A server that has lost the group goes on above its numbers.
local number = math.max((tonumber(last[2]) or 0) + 1, now_us)
local text = string.format('%.0f', number)
-- A full server refuses a ZADD, but not behind another write of the same script. If it is refused all the same, no name is lost.
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local members = {}
if not last[1] then
  members = {string.format('%.0f', number - 1), ''}
end
for at = 5, #ARGV do
  members[#members + 1] = text
  members[#members + 1] = ARGV[at]
end
redis.call('ZADD', KEYS[1], unpack(members))
local excess = redis.call('ZRANK', KEYS[1], redis.call('ZRANGE', KEYS[1], -1, -1)[1]) - ARGV[4]
if excess > 0 then
  -- The first of them is the old floor.
  local gone = redis.call('ZPOPMIN', KEYS[1], excess + 1)
  redis.call('ZADD', KEYS[1], gone[#gone], '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local heard = redis.pcall(ARGV[2], ARGV[3], text)
return {number, type(heard) == 'number' and heard or 0}
