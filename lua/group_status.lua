-- Reads which signals of a group were given, and keeps it for those who ask. Makes the group if it does not exist.
-- KEYS: 1 group
-- ARGV: 1 seen (the number that is known; empty: the names are not wanted), 2 retention_ms
-- Returns {number}, or {number, missed, names} if it is another number than the known one: the names that were signalled after that, and 1 if there may be more.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local number = tonumber(last[2])
if not number then
  -- What was before is not known; from now on all is.
  local time = redis.call('TIME')
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
local names = redis.call('ZRANGE', KEYS[1], string.format('(%.0f', seen), '+inf', 'BYSCORE')
if names[1] == '' then
  table.remove(names, 1)
end
return {number, (seen > number or seen < floor) and 1 or 0, names}
