-- Puts a lease back that is missing because the server has lost its last writes, unless another holds the lock.
-- KEYS: 1 name, 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 count, 3 ttl_ms (never shortens what the lock has), 4 first token of the lease, 5 last token of the lease, 6 retention_ms of the counter (0: for ever), 7 entry (optional: it may have queued)
-- Returns 1, or 0 when another holds the lock.
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
local is_there = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
local is_older = false
if not is_there and redis.call('EXISTS', KEYS[1]) == 1 then
  -- A counter below the tokens of this lease shows that the data is older than its grant. So a lease of this library that
  -- holds the lock was over by then, and only its end was lost, too. Redisson does not raise the counter.
  local holder = redis.call('HRANDFIELD', KEYS[1])
  local is_ours = string.match(holder, ':%x+%-%x+%-%x+%-%x+%-%x+$')
  is_older = is_ours and redis.call('HLEN', KEYS[1]) == 1 and 0 < last and last < tonumber(ARGV[4])
  if not is_older then
    return 0
  end
end

if last < tonumber(ARGV[5]) then
  if ARGV[6] == '0' then
    redis.call('SET', KEYS[2], ARGV[5])
  else
    redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6])
  end
end
if ARGV[7] then
  redis.call('ZREM', KEYS[3], ARGV[7])
end
if is_older then
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  local expiry = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
  if type(expiry) == 'table' then
    -- Nothing is rolled back: a lock that could not be given an end must not stay.
    if not is_there then
      redis.call('DEL', KEYS[1])
    end
    return expiry
  end
end
return 1
