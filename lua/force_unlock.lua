-- Frees the lock whoever holds it, or only if the given lease does, and tells those who wait.
-- KEYS: 1 name, 2 channel, 3 token (fencing counter; only of use with an age)
-- ARGV: 1 publish verb, 2 id (optional: only if this lease holds it), 3 age_us (optional: only if the lock was taken so long ago)
-- Returns 1, or 0 when there was nothing to free.
if ARGV[2] then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return 0
  end
  -- The counter is the time of the acquire, or later.
  if ARGV[3] then
    local time = redis.call('TIME')
    local taken = tonumber(redis.call('GET', KEYS[3]) or 0)
    if time[1] * 1000000 + time[2] - taken < tonumber(ARGV[3]) then
      return 0
    end
  end
elseif redis.call('HLEN', KEYS[1]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[1], KEYS[2], '0')
return 1
