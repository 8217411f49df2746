-- Sets how many permits there are, or adds some, and serves the queue.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 what (set or add), 2 number, 3 initial (how many permits there are if the semaphore does not exist; empty: none), 4 publish verb, 5 channel of the semaphore
-- Returns {permits left (less than 0 if more are out than there are), permits out}, or an empty list if there would be more than 2^31 - 1, which Redisson cannot read: then nothing has changed.
local number = tonumber(ARGV[2])
local before = left or (tonumber(ARGV[3]) or 0) - out()
if ARGV[1] == 'add' and before + out() + number > 2147483647 then
  return {}
end
sweep()
local had = left or 0
if ARGV[1] == 'set' then
  put(number - out())
else
  put((left or before) + number)
end
local more = left > had
local first, moved = serve()
if first and moved then
  tell_first(tonumber(ARGV[3]))
end
if more and left > 0 then
  redis.pcall(ARGV[4], ARGV[5], left)
end
return {left, out()}
