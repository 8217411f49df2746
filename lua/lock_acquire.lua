-- Takes the lock if it is free and nobody is ahead in the queue. Sent again for the same lease it confirms the lease and
-- takes nothing new. Otherwise it queues, if it has an entry; it does so once, however often it is sent.
-- KEYS: 1 name (hash: lease id -> hold count), 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 count, 3 ttl_ms, 4 block (how many tokens), 5 retention_ms of the counter (0: for ever), 6 grain_us (the time is rounded down to it), 7 channel of the lock, 8 entry (optional; without it or empty: does not queue), 9 show (optional; how many of those who wait are listed, eight if it is not said), 10 count (optional; SHARDNUMSUB, if the channel is a sharded one)
-- Returns {1, end of the token block} when it is held, {0, pttl, holder, subscribers of the channel} when another holds it, or is the first to get it. With a queue a refusal goes on: place (-1: not queued, 0: the first), server_us, list of those who wait.
if redis.call('EXISTS', KEYS[1], KEYS[3] or KEYS[1]) == 0 then
  return {1, (take(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]))}
end

local pump, tell_head, leave, waiters, _, head, is_foreign = queue()
local entry = KEYS[3] and ARGV[8] ~= '' and ARGV[8]
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  local last = redis.call('GET', KEYS[2])
  if last then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
  else
    last = take(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6])
  end
  if entry then
    leave(entry)
  end
  return {1, tonumber(last)}
end

if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key is a lock of another kind')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local was_queued = false
if entry then
  was_queued = redis.call('ZRANK', KEYS[3], entry) ~= false
  if not was_queued then
    -- Behind all others, also if the clock was set back. A full server may refuse it: then it is not queued.
    local newest = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    redis.pcall('ZADD', KEYS[3], math.max(now, tonumber(newest or 0) + 1), entry)
  end
  redis.call('PEXPIRE', KEYS[3], 60000)
end
local pttl = redis.call('PTTL', KEYS[1])
local holder = redis.call('HRANDFIELD', KEYS[1])
local subscribers = redis.call('PUBSUB', ARGV[10] or 'NUMSUB', ARGV[7])[2]
if pttl == -2 then
  -- It is free for a moment, so that Redisson's waiters on the channel can take it. A newcomer must not end that moment,
  -- unless the one who was told of it is gone, and nobody else waits.
  local first = not was_queued and subscribers > 0 and head(entry)
  if first and first ~= entry then
    if passed > 0 then
      tell_head()
    end
    pttl, holder = 0, string.match(first, '[^ ]+$')
  else
    first = pump(entry)
    if not first or first == entry then
      if entry and not first then
        redis.call('ZREM', KEYS[3], entry)
      end
      local last = take(ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6])
      tell_head(ARGV[1], ARGV[3])
      return {1, last}
    end
    pttl, holder = redis.call('PTTL', KEYS[1]), redis.call('HRANDFIELD', KEYS[1])
  end
elseif was_queued and is_foreign(holder) then
  -- Only the first hears of the release of another library's client, and it may be gone. One that has just come is not taken
  -- for that: only who waits for longer looks.
  local _, mailbox = head(entry)
  if mailbox and passed > 0 then
    tell_head()
  end
end
local refusal = {0, pttl, holder, subscribers}
if KEYS[3] then
  refusal[5] = entry and redis.call('ZRANK', KEYS[3], entry) or -1
  refusal[6] = now
  refusal[7] = waiters(tonumber(ARGV[9] or 8))
end
return refusal
