-- Gives a lease's permits back, serves the queue, and tells the others. A lease that waits in the queue leaves it. With
-- keep_ms the permits stay out for that long at most, and come back by themselves. Forgotten, they never come back.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 id, 2 weight, 3 keep_ms (0: none; no end comes later), 4 publish verb, 5 channel of the semaphore, 6 forget (1, or empty), 7 entry (empty: it has not queued), 8 granted (1: this lease was granted by message)
-- Returns {1, receivers of the message on the channel}, or {0, receivers} when the lease does not have all its permits. A third number says how many in the queue were gone and passed over, if any were.
local own = members(ARGV[1], tonumber(ARGV[2]))
local place = ARGV[7] ~= '' and redis.call('ZRANK', KEYS[3], ARGV[7])
if place then
  redis.call('ZREM', KEYS[3], ARGV[7])
end
local keeps = ARGV[3] ~= '0'
local had, back = 0, 0
if keeps then
  had = there(own)
  for _, member in ipairs(own) do
    redis.call('ZADD', KEYS[2], 'XX', 'LT', next_ms + tonumber(ARGV[3]), member)
  end
elseif ARGV[6] == '1' then
  had = redis.call('ZREM', KEYS[2], unpack(own))
else
  had = take_back(own)
  back = had
end
back = back + sweep()

-- Redisson's waiters listen to the channel and are in no queue. Every second turn is open to them.
local has_more = left and left > 0
local count = ARGV[4] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local is_open = ARGV[8] == '1' and back > 0 and has_more and redis.call('PUBSUB', count, ARGV[5])[2] > 0
if is_open then
  tell_head(nil, -2)
else
  local first, moved = serve()
  if first and (moved or place == 0 or keeps) then
    tell_first()
  end
end
local receivers = 0
if left and left > 0 and back > 0 then
  receivers = redis.pcall(ARGV[4], ARGV[5], left)
end
-- The list ends before a nil.
return {
  had == #own and 1 or 0,
  type(receivers) == 'number' and receivers or 0,
  passed > 0 and passed or nil,
}
