-- Reads a signal, and keeps it for those who ask.
-- KEYS: 1 signal
-- ARGV: 1 seen (the number that is known; empty: the data are not wanted), 2 retention_ms
-- Returns {number}, or {number, data} if it is another number than the known one. The number is 0 if the signal does not exist.
local number = tonumber(redis.call('HGET', KEYS[1], 'number')) or 0
if number > 0 and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) - 60000 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if ARGV[1] == '' or number == tonumber(ARGV[1]) then
  return {number}
end
return {number, redis.call('HGET', KEYS[1], 'data') or ''}
