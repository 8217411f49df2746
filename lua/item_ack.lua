-- Ends a delivery as done while nobody waits for an item, which is what is usual: it needs none of the functions of queue.lua and
-- items.lua. The library puts this text before item_settle.lua, which goes on in all other cases.
-- KEYS: 2 lent, 3 queue, 4 contents
-- ARGV: 1 id, 2 outcome, 5 at_us (when the item was lent that this is about)
-- Returns {1} if it was lent, else nothing.
local queued = ARGV[2] == 'ack' and redis.pcall('ZRANGE', KEYS[3], 0, 0)
if queued and not queued.err and not queued[1] then
  local text = redis.call('HGET', KEYS[4], ARGV[1])
  if text and string.match(text, '^%d+ (%d+):') == ARGV[5] then
    -- Who may not do the second half does not do the first one.
    redis.call('HDEL', KEYS[4], '')
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('HDEL', KEYS[4], ARGV[1])
    return {1}
  end
end

