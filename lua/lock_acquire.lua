-- Takes the lock if it is free. Sent again for the same lease it confirms the lease and takes nothing new.
-- KEYS: 1 name (hash: lease id -> hold count), 2 token (fencing counter), 3 channel (of the waiters)
-- ARGV: 1 id, 2 count, 3 ttl_ms, 4 block (how many tokens), 5 retention_ms of the counter (0: for ever), 6 grain_us (the time is rounded down to it)
-- Returns {1, end of the token block} when it is held, {0, pttl, holder, subscribers} when another holds it.
local pttl = redis.call('PTTL', KEYS[1])
local again = pttl ~= -2
if again and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  local subscribers = redis.call('PUBSUB', 'NUMSUB', KEYS[3])
  return {0, pttl, redis.call('HRANDFIELD', KEYS[1]), subscribers[2]}
end
if again then
  local last = redis.call('GET', KEYS[2])
  if last then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
    return {1, tonumber(last)}
  end
end

-- The server's microseconds, or more where the counter is ahead of them: tokens grow past a lost counter.
-- A token goes to redis.call as a number: made text by Lua it would lose its last digits.
local time = redis.call('TIME')
local block = tonumber(ARGV[4])
local function keep(last)
  if ARGV[5] == '0' then
    return redis.call('SET', KEYS[2], last, 'GET')
  end
  return redis.call('SET', KEYS[2], last, 'PX', ARGV[5], 'GET')
end
local now = time[1] * 1000000 + time[2]
now = now - now % tonumber(ARGV[6])
local last = now + block
local before = tonumber(keep(last) or 0)
if before > now then
  last = before + block
  keep(last)
end

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
-- Nothing is rolled back: a lock that could not be given an end must not stay.
local expiry = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
if type(expiry) == 'table' and expiry.err then
  redis.call('DEL', KEYS[1])
  return expiry
end
return {1, last}
