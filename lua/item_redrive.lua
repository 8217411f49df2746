-- Has dead items be delivered again, the oldest first, as if they were new.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 most (how many at most)
-- Returns how many.
local count = 0
-- Fails if this user may not run it: the item would be in two places.
redis.call('LPOP', KEYS[5], 0)
while count < tonumber(ARGV[1]) do
  local payload = redis.call('LINDEX', KEYS[5], 0)
  if not payload then
    break
  end
  redis.call('RPUSH', KEYS[1], payload)
  redis.call('LPOP', KEYS[5])
  count = count + 1
end
local answer = count

