-- Reads who holds the lock, and who waits for it. Changes nothing. While a cluster moves the slot, it gets the name alone.
-- KEYS: 1 name, 2 token (optional), 3 queue (optional)
-- ARGV: 1 channel of the lock, 2 show (how many of those who wait are listed; only with a queue), 3 count (optional; SHARDNUMSUB, if the channel is a sharded one)
-- Returns {pttl, holder, hold count, last token taken, subscribers}; pttl -2 and nils where there is nothing. With a queue it goes on: server_us, list of those who wait (entry, and microsecond of the arrival, of each).
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key is a lock of another kind')
end
local pttl = redis.call('PTTL', KEYS[1])
local holder = redis.call('HRANDFIELD', KEYS[1])
local count = holder and redis.call('HGET', KEYS[1], holder)
local subscribers = redis.call('PUBSUB', ARGV[3] or 'NUMSUB', ARGV[1])
-- A nil would end the list.
local last = KEYS[2] and redis.call('GET', KEYS[2]) or false
local status = {pttl, holder, count, last, subscribers[2]}
if KEYS[3] then
  local time = redis.call('TIME')
  status[6] = time[1] * 1000000 + time[2]
  local _, _, _, waiters = queue()
  status[7] = waiters(tonumber(ARGV[2]))
end
return status
