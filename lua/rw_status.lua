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
local readers = {}
if mode == 'read' then
  local fields = redis.call('HRANDFIELD', KEYS[1], 100000, 'WITHVALUES')
  for i = 1, #fields, 2 do
    local levels = tonumber(fields[i + 1])
    if levels and string.sub(fields[i], -6) ~= ':write' then
      local left = -2
      for level = levels, math.max(1, levels - 99), -1 do
        left = math.max(left, redis.call('PTTL', end_key(fields[i], level)))
      end
      if left == -2 then
        must_be_gone(end_key(fields[i], levels))
      else
        readers[#readers + 1] = fields[i]
        -- One that other servers name, too.
        if not by or fields[i] < by then
          by, count = fields[i], fields[i + 1]
        end
        pttl = math.max(pttl, left)
      end
    end
  end
elseif mode then
  by, pttl = holder(mode)
  count = redis.call('HGET', KEYS[1], field_of(by))
end
local subscribers = redis.call('PUBSUB', ARGV[3], ARGV[1])
local status = {pttl, by, count, redis.call('GET', KEYS[2]), subscribers[2], readers}
if KEYS[3] then
  local time = redis.call('TIME')
  status[7] = time[1] * 1000000 + time[2]
  status[8] = waiters(tonumber(ARGV[2]))
end
return status
