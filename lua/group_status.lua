-- Reads which signals of a group were given, and keeps it for those who ask. Makes the group if it does not exist.
-- KEYS: 1 group
-- ARGV: 1 seen (the number that is known; empty: the names are not wanted), 2 retention_ms
-- Returns {number}, or {number, missed, names} if it is another number than the known one: the names that were signalled after that, up to that number, and 1 if there may have been more. Of many names only the first are returned, so that the answer is not too long.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local number = tonumber(last[2])
if not number then
  -- What was before is not known; from now on all is.
  local time = redis.call('TIME')
  -- A full server refuses a ZADD, but not behind another write of the same script.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  number = time[1] * 1000000 + time[2]
  redis.call('ZADD', KEYS[1], string.format('%.0f', number), '')
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) - 60000 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local seen = tonumber(ARGV[1])
if not seen or seen == number then
  return {number}
end
local floor = tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
local after = string.format('(%.0f', seen)
-- All names of one number belong together: there are 1000 at most.
local many = redis.call('ZRANGE', KEYS[1], after, '+inf', 'BYSCORE', 'LIMIT', 1000, 1, 'WITHSCORES')
number = tonumber(many[2]) or number
local names = redis.call('ZRANGE', KEYS[1], after, string.format('%.0f', number), 'BYSCORE')
if names[1] == '' then
  table.remove(names, 1)
end
return {number, (seen > number or seen < floor) and 1 or 0, names}
