-- Lengthens a delivery that is still lent.
-- KEYS: 1 lent, 2 contents (only if the content is wanted)
-- ARGV: 1 id, 2 ttl_ms (0: only asks; its end never comes sooner), 3 read (1: the content is wanted, or empty)
-- Returns 1, or {1, content} if that is wanted; or 0 when it is lent no more.
if not redis.call('ZRANK', KEYS[1], ARGV[1]) then
  return 0
end
if ARGV[2] ~= '0' then
  local time = redis.call('TIME')
  local ends_ms = math.ceil((time[1] * 1000000 + time[2]) / 1000) + tonumber(ARGV[2])
  -- A full server refuses a ZADD, but not behind another write of the same script.
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], 'XX', 'GT', ends_ms, ARGV[1])
end
if ARGV[3] == '1' then
  return {1, redis.call('HGET', KEYS[2], ARGV[1])}
end
return 1
