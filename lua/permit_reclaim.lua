-- Puts a lease's permits back that are missing because the server has lost its last writes. What others had by then that
-- is lost, too, comes to its end; until then fewer may be left than none.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 id, 2 weight, 3 ttl_ms, 4 initial (how many permits there are if the semaphore does not exist; empty: it is not made), 5 entry (empty: it has not queued)
-- Returns 1.
local weight, initial = tonumber(ARGV[2]), tonumber(ARGV[4])
if ARGV[5] ~= '' then
  redis.call('ZREM', KEYS[3], ARGV[5])
end
local own = members(ARGV[1], weight)
local missing = weight - #there(own)
if not left and initial then
  left = initial - out()
end
if left then
  put(left - missing)
end
local written = write(own, tonumber(ARGV[3]))
if type(written) == 'table' then
  if left then
    put(left + missing)
  end
  return written
end
return 1
