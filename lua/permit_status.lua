-- Reads how many permits are left, who has the others, and who waits. Changes nothing.
-- KEYS: 1 name, 2 holders, 3 queue
-- ARGV: 1 channel of the semaphore, 2 show (how many holders, and how many of those who wait, are listed), 3 count (NUMSUB, or SHARDNUMSUB if the channel is a sharded one)
-- Returns {permits left (empty: the semaphore does not exist), permits out, subscribers, server_us, list of holders (name, number of permits, and ms until their end or -1, of each), list of those who wait (entry, and microsecond of the arrival, of each)}.
local after = string.format('(%d', now_ms)
local living = redis.call('ZRANGE', KEYS[2], after, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
local ended = living and redis.call('ZRANK', KEYS[2], living) or out()
local show = tonumber(ARGV[2])
-- Three items for each holder; and by its name, the place of its number.
local holders, place = {}, {}
local prefix, counted
-- More permits would keep the server from all others for too long.
for first = ended, ended + 19999, 1000 do
  local permits = redis.call('ZRANGE', KEYS[2], first, first + 999, 'WITHSCORES')
  for at = 1, #permits, 2 do
    local member = permits[at]
    -- The permits of a lease are one behind the other.
    if not prefix or string.sub(member, 1, #prefix) ~= prefix then
      local name, is_ours = holder_of(member)
      prefix = is_ours and table.concat({name, ':'}) or nil
      counted = place[name]
      if not counted and #holders < 3 * show then
        local ends_ms = tonumber(permits[at + 1])
        holders[#holders + 1] = name
        holders[#holders + 1] = 0
        counted = #holders
        place[name] = counted
        holders[#holders + 1] = ends_ms < 922337203685477 and math.max(ends_ms - next_ms, 0) or -1
      end
    end
    if counted then
      holders[counted] = holders[counted] + 1
    end
  end
  if #permits < 2000 then
    break
  end
end
local subscribers = redis.call('PUBSUB', ARGV[3], ARGV[1])[2]
return {left and left + ended or '', out() - ended, subscribers, now_us, holders, waiters(show)}
