-- Has dead items be delivered again, the oldest first, as if they were new.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 most (how many at most)
-- Returns how many. They are fewer if they are large: to copy them keeps the server from all others.
-- What follows needs these. Who may not run them moves nothing.
redis.call('TIME')
redis.call('LPOP', KEYS[5], 0)
local count, bytes = 0, 0
while count < tonumber(ARGV[1]) and bytes < 16777216 do
  local payload = redis.pcall('LINDEX', KEYS[5], 0)
  if type(payload) == 'table' and count == 0 then
    return payload
  elseif type(payload) ~= 'string' then
    -- While a cluster moves the slot, it refuses to look for what is gone, as a list is without its last item.
    break
  end
  redis.call('RPUSH', KEYS[1], payload)
  redis.call('LPOP', KEYS[5])
  count, bytes = count + 1, bytes + #payload
end
local answer = count

