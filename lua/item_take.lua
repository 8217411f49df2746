-- Lends an item that nobody has had while nobody waits for one and none is to be delivered again, which is what is usual: it needs
-- none of the functions of queue.lua and items.lua. The library puts this text before item_pop.lua, which goes on in all other cases.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents
-- ARGV: 1 id, 2 how, 3 ttl_ms
-- Returns what item_pop.lua returns when an item is lent, else nothing.
local queued = redis.pcall('ZRANGE', KEYS[3], 0, 0)
local payload = redis.pcall('LINDEX', KEYS[1], ARGV[2] % 2 == 0 and -1 or 0)
if not queued.err and not queued[1] and type(payload) == 'string' then
  local time = redis.call('TIME')
  local now_us, how = time[1] * 1000000 + time[2], tonumber(ARGV[2])
  local out = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local ends_ms = math.ceil(now_us / 1000) + tonumber(ARGV[3])
  -- Sent again for the same delivery it writes nothing. Nor does it on a full server, where item_pop.lua goes on.
  if
    (not out[1] or tonumber(out[2]) > math.floor(now_us / 1000))
    and redis.pcall('ZADD', KEYS[2], 'NX', ends_ms, ARGV[1]) == 1
  then
    local text = table.concat({string.format('1 %d:', now_us), payload})
    local popped = redis.pcall('HSET', KEYS[4], ARGV[1], text)
    if type(popped) ~= 'table' then
      popped = redis.pcall(how % 2 == 0 and 'RPOP' or 'LPOP', KEYS[1])
    end
    if type(popped) ~= 'table' then
      return {1, how, ARGV[1], text}
    end
    -- This user may not write it down, or not remove it: nobody gets it.
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('HDEL', KEYS[4], ARGV[1])
    return popped
  end
end
