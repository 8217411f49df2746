-- Reads who holds a read-write lock, and who waits for it. Changes nothing.
-- KEYS: 1 name (hash), 2 token, 3 queue (optional)
-- ARGV: 1 channel of the lock, 2 show (how many of those who wait are listed), 3 count (NUMSUB or SHARDNUMSUB)
-- Returns {pttl, holder, hold count, last token taken, subscribers, list of the readers}; pttl -2 and nils where there is nothing. With a queue it goes on: server_us, list of those who wait (entry, and microsecond of the arrival, of each).
local mode = redis.call('HGET', KEYS[1], 'mode')
local wrong = wrong_kind(mode)
if wrong then
  return wrong
end
local by, pttl, count = false, -2, false
local names = {}
if mode == 'read' then
  for _, id in ipairs((readers(100000))) do
    local left = reads_for(id)
    if left then
      names[#names + 1] = id
      -- One that other servers name, too.
      if not by or id < by then
        by, count = id, redis.call('HGET', KEYS[1], id)
      end
      pttl = math.max(pttl, left)
    else
      must_be_gone(end_key(id, 1))
    end
  end
elseif mode then
  by, pttl = holder(mode)
  count = redis.call('HGET', KEYS[1], field_of(by))
end
local subscribers = redis.call('PUBSUB', ARGV[3], ARGV[1])
local status = {pttl, by, count, redis.call('GET', KEYS[2]), subscribers[2], names}
if KEYS[3] then
  local time = redis.call('TIME')
  status[7] = time[1] * 1000000 + time[2]
  status[8] = waiters(tonumber(ARGV[2]))
end
return status
