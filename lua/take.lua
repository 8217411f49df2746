-- How a lock is given to a lease. The library puts this text before the scripts that do so.
-- KEYS: 1 name (hash: lease id -> hold count), 2 token (fencing counter)
-- ARGV: 5 retention_ms of the counter (optional; 0: for ever, a day if it is not said)
-- Returns nothing.

-- Gives the lock to a lease, of whose token block it returns the end, and the server's time before the lease began. The time
-- is rounded down to `grain_us` for the tokens, if that is given.
local function take(id, ttl_ms, block, grain_us)
  -- The server's microseconds, or more where the counter is ahead of them: tokens grow past a lost counter.
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local start = grain_us and now - now % grain_us or now
  local last = start + block
  -- With %d a token keeps all its digits. A server that is given a number takes longer to write it.
  local text = string.format('%d', last)
  local before
  if ARGV[5] == '0' then
    before = redis.call('SET', KEYS[2], text, 'GET')
  else
    before = redis.call('SET', KEYS[2], text, 'PX', ARGV[5] or '86400000', 'GET')
  end
  if before and tonumber(before) > start then
    last = before + block
    redis.call('SET', KEYS[2], last, 'KEEPTTL')
  end

  redis.call('HSET', KEYS[1], id, '1')
  local expiry = redis.pcall('PEXPIRE', KEYS[1], ttl_ms)
  if type(expiry) == 'table' then
    -- Nothing is rolled back: a lock that could not be given an end must not stay. The second call ends the script with
    -- the error of the first.
    redis.call('DEL', KEYS[1])
    redis.call('PEXPIRE', KEYS[1], ttl_ms)
    return nil
  end
  return last, now
end

