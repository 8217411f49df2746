-- Takes permits if there are enough and nobody is ahead in the queue. Sent again for the same lease it confirms the lease
-- and takes nothing new. Otherwise it queues, if it has an entry; it does so once, however often it is sent.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 id, 2 weight (how many permits), 3 ttl_ms, 4 publish verb, 5 channel of the semaphore, 6 initial (how many permits there are if the semaphore does not exist; empty: it is not made), 7 entry (empty: does not queue), 8 show (how many of those who wait are listed), 9 count (NUMSUB, or SHARDNUMSUB if the channel is a sharded one)
-- Returns {1, weight} when they are held, or {0, ms until the first permit ends (-1: none does), a holder, subscribers of the channel, place (-1: not queued, 0: the first), server_us, list of those who wait, permits left (empty: the semaphore does not exist)}.
local id, weight, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local initial, entry = tonumber(ARGV[6]), ARGV[7] ~= '' and ARGV[7]

local own = members(id, weight)
local had = there(own)
-- After a failover more may be out than there are. Then what has ended makes up for what was put back, and nobody has it.
local is_over, lacking = false, #had == weight and left and -left or 0
if lacking > 0 then
  for _, ended in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1000)) do
    is_over = is_over or ended == had[1]
    lacking = lacking - 1
  end
end
local function refuse(subscribers)
  local name, pttl = holder(initial)
  local place = entry and redis.call('ZRANK', KEYS[3], entry) or -1
  return {0, pttl, name, subscribers, place, now_us, waiters(tonumber(ARGV[8])), left or ''}
end
if lacking > 0 and not is_over then
  -- A message granted it, and nobody uses it yet: somebody else has put back what it was granted. It asks again when it has ended.
  return refuse(redis.call('PUBSUB', ARGV[9], ARGV[5])[2])
end
if #had == weight and not is_over then
  local written = write(own, ttl_ms)
  if type(written) == 'table' then
    return written
  end
  if entry and redis.call('ZREM', KEYS[3], entry) == 1 and serve() then
    tell_first(initial)
  end
  return {1, weight}
end
if #had > 0 then
  -- Redisson takes ended permits back one by one. A part of a lease is no lease.
  take_back(had)
end

local ended, lapsed = sweep()
if not left and initial then
  put(initial - out())
end
local function announce()
  if ended > 0 and left and left > 0 then
    redis.pcall(ARGV[4], ARGV[5], left)
  end
end

local subscribers = redis.call('PUBSUB', ARGV[9], ARGV[5])[2]
local was_queued = entry and redis.call('ZRANK', KEYS[3], entry)
local was_silent = ended > 0 and pass_over_silent(waiter, entry, function()
  return lapsed
end)
local first, moved = redis.call('ZRANGE', KEYS[3], 0, 0)[1], false
-- Permits may be left for a moment, so that Redisson's waiters on the channel can take them. A newcomer must not end that
-- moment, unless the one who was told of it is gone, and nobody else waits.
if first and first ~= entry then
  if was_queued or subscribers == 0 then
    first, moved = serve(entry)
  else
    first = head(entry)
    if first and passed > 0 then
      tell_head(nil, -2)
    end
  end
end
if (not first or first == entry) and left and left >= weight then
  if was_queued then
    redis.call('ZREM', KEYS[3], entry)
  end
  local failed = give(id, weight, ttl_ms)
  if failed then
    return failed
  end
  if was_queued and serve() then
    tell_first(initial)
  end
  announce()
  return {1, weight}
end

if entry then
  if not was_queued then
    -- Behind all others, also if the clock was set back. A full server may refuse it: then it is not queued.
    local newest = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    redis.pcall('ZADD', KEYS[3], math.max(now_us, math.floor(tonumber(newest or 0)) + 1), entry)
  end
  redis.call('PEXPIRE', KEYS[3], 60000)
end
if (moved or was_silent) and first and first ~= entry then
  tell_first(initial)
end
announce()
return refuse(subscribers)
