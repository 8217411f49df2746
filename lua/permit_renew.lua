-- Lengthens a lease of permits that is still there as a whole.
-- KEYS: 1 holders
-- ARGV: 1 id, 2 weight, 3 ttl_ms (0: only asks; no end comes sooner)
-- Returns 1, or 0 when the lease does not have all its permits.
local time = redis.call('TIME')
local ends_ms = math.ceil((time[1] * 1000000 + time[2]) / 1000) + tonumber(ARGV[3])
local places = {}
for number = 1, tonumber(ARGV[2]) do
  local member = string.format('%s:%d', ARGV[1], number)
  if not redis.call('ZRANK', KEYS[1], member) then
    return 0
  end
  places[#places + 1] = ends_ms
  places[#places + 1] = member
end
if ARGV[3] ~= '0' then
  -- A full server refuses a ZADD, but not behind another write of the same script.
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], 'XX', 'GT', unpack(places))
end
return 1
