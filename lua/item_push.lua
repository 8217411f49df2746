-- Adds items, all or none, and lends them to those who wait.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 most (there may be so many items that are not done; 0: any number), then the payloads
-- Returns {1, how many are not done now}, or {0, how many are not done} if there would be too many.
local count = redis.call('LLEN', KEYS[1]) + out()
local most_items, new = tonumber(ARGV[1]), #ARGV - 1
if most_items > 0 and count + new > most_items then
  return {0, count}
end
for index = 2, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[index])
end
-- While a cluster moves the slot, it refuses to look for what is gone. Those who wait ask again.
pcall(function()
  local first, moved = serve()
  if first and moved then
    tell_first()
  end
end)
return {1, count + new}
