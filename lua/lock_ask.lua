-- What an acquire does if the lock is not free, or others wait for it. The library puts this text behind lock_acquire.lua, which
-- takes a free lock, and queue.lua.
-- KEYS: 1 name, 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 ttl_ms, 3 block, 4 entry, 6 grain_us, 7 show, 8 count, as for lock_acquire.lua
-- Returns what lock_acquire.lua says.
local pump, tell_head, leave, waiters, waiter, head, is_foreign = queue()
local entry = KEYS[3] and ARGV[4] and ARGV[4] ~= '' and ARGV[4]
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  -- It may run late, when the lease was made longer: it makes it no shorter.
  local ttl_ms = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]))
  local last = redis.call('GET', KEYS[2])
  if last then
    redis.call('PEXPIRE', KEYS[1], ttl_ms)
    redis.pcall('HSET', KEYS[1], ARGV[1], '1')
  else
    last = take(ARGV[1], ttl_ms, ARGV[3] or 1, ARGV[6])
  end
  if entry then
    leave(entry)
  end
  return tonumber(last)
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
    redis.pcall('ZADD', KEYS[3], math.max(now, math.floor(tonumber(newest or 0)) + 1), entry)
  end
  redis.call('PEXPIRE', KEYS[3], 60000)
end
local pttl = redis.call('PTTL', KEYS[1])
local holder = redis.call('HRANDFIELD', KEYS[1])
local has_braces = string.find(KEYS[1], '{', 1, true)
-- Not by `%s`, which ends at a zero byte.
local channel = table.concat({'redisson_lock__channel:', has_braces and '' or '{', KEYS[1], has_braces and '' or '}'})
local subscribers = redis.call('PUBSUB', ARGV[8] or 'NUMSUB', channel)[2]
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
    pass_over_silent(waiter, entry)
    first = pump(entry)
    if not first or first == entry then
      if entry and not first then
        redis.call('ZREM', KEYS[3], entry)
      end
      local last = take(ARGV[1], ARGV[2], ARGV[3] or 1, ARGV[6])
      tell_head(ARGV[1], ARGV[2])
      return last
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
  refusal[7] = waiters(tonumber(ARGV[7] or entry and 0 or 8))
  if refusal[5] == 0 then
    -- The first in the queue tells the holder that it waits. The holder's id ends with the number of its mailbox. Nobody need
    -- hear it, and nothing is decided by it.
    local client, high, low = string.match(holder, '^(.*):%x+%-%x+%-%x+%-([c-f]%x%x%x)%-(%x+)$')
    if client then
      local mailbox = string.format('leasehold_mailbox:%s:%s%s', client, high, low)
      redis.pcall('PUBLISH', mailbox, string.format('wanted %s', holder))
    end
  end
end
return refusal
