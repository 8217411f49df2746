-- Reads how many permits are left, who has the others, and who waits. Changes nothing.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 channel of the semaphore, 2 show (how many permits, and how many of those who wait, are listed), 3 count (NUMSUB, or SHARDNUMSUB if the channel is a sharded one)
-- Returns {permits left (empty: the semaphore does not exist), permits out, subscribers, server_us, list of permits (holder, and ms until its end or -1, of each), list of those who wait (entry, and microsecond of the arrival, of each)}.
local ended = #redis.call('ZRANGE', KEYS[2], '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1000)
local after = string.format('(%d', now_ms)
local listed =
  redis.call('ZRANGE', KEYS[2], after, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
local permits = {}
for at = 1, #listed, 2 do
  local ends_ms = tonumber(listed[at + 1])
  permits[at] = holder_of(listed[at])
  permits[at + 1] = ends_ms < 922337203685477 and math.max(ends_ms - next_ms, 0) or -1
end
local subscribers = redis.call('PUBSUB', ARGV[3], ARGV[1])[2]
local found = waiters(tonumber(ARGV[2]))
return {left and left + ended or '', out() - ended, subscribers, now_us, permits, found}
