-- Adds items, all or none, and lends them to those who wait (item_lend.lua).
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 most (there may be so many items that are not done; 0: any number), then the payloads
-- Returns {1, how many are not done now}, or {0, how many are not done} if there would be too many.
local count = redis.call('LLEN', KEYS[1])
local last_lent = redis.call('ZRANGE', KEYS[2], -1, -1)[1]
if last_lent then
  count = count + redis.call('ZRANK', KEYS[2], last_lent) + 1
end
local most_items, new = tonumber(ARGV[1]), #ARGV - 1
if most_items > 0 and count + new > most_items then
  return {0, count}
end
-- While a cluster moves the slot, it refuses to look for what is gone. Those who wait ask again.
local waits = redis.pcall('ZRANGE', KEYS[3], 0, 0)[1]
if waits then
  -- What follows needs it. Who may not run it adds nothing.
  redis.call('TIME')
end
for index = 2, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[index])
end
local answer = {1, count + new}
-- Mostly nobody waits, and the functions for those who do need not be made.
if not waits then
  return answer
end

