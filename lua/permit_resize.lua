-- Sets how many permits there are, or adds some, and serves the queue.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 what (set or add), 2 number, 3 initial (how many permits there are if the semaphore does not exist; empty: none), 4 publish verb, 5 channel of the semaphore
-- Returns {permits left (less than 0 if more are out than there are), permits out}, or an empty list if there would be more than 2^31 - 1, which Redisson cannot read: then nothing has changed.
local number, had = tonumber(ARGV[2]), left or 0
if ARGV[1] == 'add' then
  number = number + (left and left + out() or tonumber(ARGV[3]) or 0)
  if number > 2147483647 then
    return {}
  end
end
sweep()
local are_out = out()
put(number - are_out)
local more = left > had
-- While a cluster moves the slot, it refuses to look for what is gone. The permits are added whatever becomes of the rest: a script
-- that failed would be sent again, and would add them again. Those who wait ask again.
pcall(function()
  local first, moved = serve()
  if first and moved then
    tell_first(tonumber(ARGV[3]))
  end
  are_out = out()
end)
if more and left > 0 then
  redis.pcall(ARGV[4], ARGV[5], left)
end
return {left, are_out}
