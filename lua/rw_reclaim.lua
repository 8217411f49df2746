-- Puts a lease of a read-write lock back that is missing because the server has lost its last writes, unless another holds
-- the lock against it.
-- KEYS: 1 name (hash), 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 count, 3 ttl_ms (never shortens what the lock has), 4 first token of the lease, 5 last token of the lease, 6 retention_ms of the counter (0: for ever), 7 entry (empty: it has not queued), 8 side (read or write)
-- Returns 1, or 0 when another holds the lock.
local reads = ARGV[8] == 'read'
local mode = mode_now()
local wrong = wrong_kind(mode)
if wrong then
  return wrong
end
local field = field_of(ARGV[1], reads)
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
local is_there = mode and redis.call('HEXISTS', KEYS[1], field) == 1
if mode and not is_there and not (reads and mode == 'read') then
  -- A counter that shows that the data is older than this lease shows that the holders there were over before it began. A
  -- reader has the token of the writer before it. Redisson does not raise the counter.
  local is_older = 0 < last and (last < tonumber(ARGV[4]) or (reads and last == tonumber(ARGV[4])))
  for _, holder in ipairs(redis.call('HRANDFIELD', KEYS[1], 100000)) do
    local is_ours = holder == 'mode' or string.match(holder, ':%x+%-%x+%-%x+%-%x+%-%x+$') or string.match(holder, ':%x+%-%x+%-%x+%-%x+%-%x+:write$')
    is_older = is_older and is_ours
  end
  if not is_older then
    return 0
  end
  redis.call('DEL', KEYS[1])
end

if last < tonumber(ARGV[5]) then
  if ARGV[6] == '0' then
    redis.call('SET', KEYS[2], ARGV[5])
  else
    redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6])
  end
end
if KEYS[3] and ARGV[7] ~= '' then
  redis.call('ZREM', KEYS[3], ARGV[7])
end
if reads then
  local left = redis.call('PTTL', end_key(ARGV[1], 1))
  if left < tonumber(ARGV[3]) then
    redis.call('SET', end_key(ARGV[1], 1), '1', 'PX', ARGV[3])
  end
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1)
else
  redis.call('HSET', KEYS[1], 'mode', 'write', field, ARGV[2])
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  local expiry = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
  if type(expiry) == 'table' then
    -- Nothing is rolled back: a lock that could not be given an end must not stay.
    if not is_there then
      redis.call('HDEL', KEYS[1], field)
      if not live_reader() then
        redis.call('DEL', KEYS[1])
      end
    end
    return expiry
  end
end
return 1
