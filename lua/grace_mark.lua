-- Tells since when clients have known this run of the server with this history of its data. The first of them notes it.
-- KEYS: 1 mark
-- ARGV: 1 run id, 2 history id
-- Returns {since, now}, by the server's clock in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local met = string.format('%s %s ', ARGV[1], ARGV[2])
local mark = redis.call('GET', KEYS[1]) or ''
local since = string.sub(mark, 1, #met) == met and tonumber(string.sub(mark, #met + 1))
-- One that is ahead was written before the clock was set back.
if since and since <= now then
  return {since, now}
end
-- It is another server's, which came with its data, or that of another start or promotion.
redis.call('SET', KEYS[1], string.format('%s%d', met, now))
return {now, now}
