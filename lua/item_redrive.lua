-- Has dead items be delivered again, the oldest first, as if they were new.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 most (how many at most)
-- Returns how many.
-- What follows needs it. Who may not run it moves nothing.
redis.call('TIME')
local count = 0
while count < tonumber(ARGV[1]) do
  local payload = redis.pcall('LINDEX', KEYS[5], 0)
  if type(payload) == 'table' and count == 0 then
    return payload
  elseif type(payload) ~= 'string' then
    -- While a cluster moves the slot, it refuses to look for what is gone, as a list is without its last item.
    break
  end
  redis.call('RPUSH', KEYS[1], payload)
  local popped = redis.pcall('LPOP', KEYS[5])
  if type(popped) == 'table' then
    -- This user may not remove it: it stays where it is.
    redis.call('RPOP', KEYS[1])
    return popped
  end
  count = count + 1
end
local answer = count

