-- Gives a lease's permits back, serves the queue, and tells the others. A lease that waits in the queue leaves it. With
-- keep_ms the permits stay out for that long at least, and come back by themselves at their ends. Forgotten, they never come back, if the
-- lease has all of them still.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 id, 2 weight, 3 keep_ms (0: none; no end comes sooner), 4 publish verb, 5 channel of the semaphore, 6 forget (1, or empty), 7 entry (empty: it has not queued), 8 granted (1: this lease was granted by message), 9 initial (how many permits there are if the semaphore does not exist; empty: unknown), 10 most (optional: it may have so many permits, and all of them are given back)
-- Returns {1, receivers of the message on the channel}, or {0, receivers} when the lease does not have all its permits. A third number says how many in the queue were gone and passed over, if any were.
local weight = tonumber(ARGV[2])
local own = members(ARGV[1], tonumber(ARGV[10] or weight))
if ARGV[10] then
  own = there(own)
end
local place = ARGV[7] ~= '' and redis.call('ZRANK', KEYS[3], ARGV[7])
if place then
  redis.call('ZREM', KEYS[3], ARGV[7])
end
local keeps = ARGV[3] ~= '0'
local had, back = 0, 0
if keeps then
  had = #there(own)
  -- A full server refuses a ZADD, but not behind another write of the same script.
  redis.call('ZREM', KEYS[2], '')
  for _, member in ipairs(own) do
    redis.call('ZADD', KEYS[2], 'XX', 'GT', next_ms + tonumber(ARGV[3]), member)
  end
elseif ARGV[6] == '1' and #there(own) == weight then
  had = redis.call('ZREM', KEYS[2], unpack(own))
else
  had = take_back(own)
  back = had
end

-- While a cluster moves the slot, it refuses to look for what is gone. The permits are back whatever becomes of the rest, and
-- those who wait ask again.
pcall(function()
  back = back + sweep()

  -- Redisson's waiters listen to the channel and are in no queue. Every second turn is open to them.
  local has_more = left and left > 0
  local count = ARGV[4] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
  local is_open = ARGV[8] == '1' and back > 0 and has_more and redis.call('PUBSUB', count, ARGV[5])[2] > 0
  if is_open then
    tell_head(nil, -2)
  else
    local first, moved = serve()
    if first then
      -- Redisson takes permits that are too few for the first, unheard. From now on, it has to listen to its holders.
      local name, pttl, is_foreign = holder(tonumber(ARGV[9]))
      if moved or place == 0 or keeps or is_foreign then
        tell_head(name, pttl, granted)
      end
    end
  end
end)
local receivers = 0
-- Of the last one that comes back, those hear in any case who wait until all are back.
if left and back > 0 and (left > 0 or select(2, pcall(out)) == 0) then
  receivers = redis.pcall(ARGV[4], ARGV[5], math.max(left, 0))
end
-- The list ends before a nil.
return {
  had >= weight and 1 or 0,
  type(receivers) == 'number' and receivers or 0,
  passed > 0 and passed or nil,
}
