-- Gives a lock to a lease. The library puts this text before the scripts that do so; it only defines functions.
-- KEYS: 1 name (hash: lease id -> hold count), 2 token (fencing counter)
-- ARGV: 5 retention_ms of the counter (0: for ever), 6 grain_us (the time is rounded down to it)
-- Returns nothing.

local function set_counter(last)
  if ARGV[5] == '0' then
    return redis.call('SET', KEYS[2], last, 'GET')
  end
  return redis.call('SET', KEYS[2], last, 'PX', ARGV[5], 'GET')
end

-- Gives the lock to a lease, and returns the end of its token block.
local function take(id, count, ttl_ms, block)
  -- The server's microseconds, or more where the counter is ahead of them: tokens grow past a lost counter.
  -- A token goes to redis.call as a number: made text by Lua it would lose its last digits.
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local start = now - now % tonumber(ARGV[6])
  local last = start + block
  local before = tonumber(set_counter(last) or 0)
  if before > start then
    last = before + block
    set_counter(last)
  end

  redis.call('HSET', KEYS[1], id, count)
  local expiry = redis.pcall('PEXPIRE', KEYS[1], ttl_ms)
  if type(expiry) == 'table' then
    -- Nothing is rolled back: a lock that could not be given an end must not stay. The second call ends the script with
    -- the error of the first.
    redis.call('DEL', KEYS[1])
    redis.call('PEXPIRE', KEYS[1], ttl_ms)
    return nil
  end
  return last
end

