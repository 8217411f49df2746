-- Lends an item, if there is one and nobody is ahead in the queue, or if it was lent by a message that nobody has heeded. Sent again for the same delivery it confirms the delivery.
-- Otherwise it queues, if it has an entry; it does so once, however often it is sent.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 id, 2 how (which item; see items.lua), 3 ttl_ms, 4 entry (empty: does not queue), 5 show (how many of those who wait are listed)
-- Returns {1, how, id, `number at_us:payload`} when an item is lent, or {0, ms until an item can be delivered again (-1: none is lent), its holder, 0, place (-1: not queued, 0: the first), server_us, list of those who wait, how many are lent or wait to be delivered again}.
local id, how, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local entry = ARGV[4] ~= '' and ARGV[4]

local number, payload, text = content(id)
if number then
  -- A full server refuses a ZADD, but not behind another write of the same script.
  redis.call('ZREM', KEYS[2], '')
  redis.call('ZADD', KEYS[2], 'GT', next_ms + ttl_ms, id)
  if entry and redis.call('ZREM', KEYS[3], entry) == 1 and serve() then
    tell_first()
  end
  return {1, how, id, text}
end

local was_queued = entry and redis.call('ZRANK', KEYS[3], entry)
local first, moved = serve(entry)
if not first or first == entry or is_unheeded() then
  number, payload, text = lend(id, ttl_ms, how)
  if number then
    if was_queued then
      redis.call('ZREM', KEYS[3], entry)
      if serve() then
        tell_first()
      end
    end
    return {1, how, id, text}
  elseif payload then
    return payload
  end
end

if entry then
  if not was_queued then
    -- Behind all others, also if the clock was set back. A full server may refuse it: then it is not queued.
    local newest = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    redis.pcall('ZADD', KEYS[3], math.max(now_us, math.floor(tonumber(newest or 0)) + 1), entry)
  end
  redis.call('PEXPIRE', KEYS[3], 60000)
end
if moved and first and first ~= entry then
  tell_first()
end
local name, pttl = holder(id)
local place = entry and redis.call('ZRANK', KEYS[3], entry) or -1
return {0, pttl, name, 0, place, now_us, waiters(tonumber(ARGV[5])), out()}
