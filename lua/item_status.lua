-- Tells what is known about a queue of items. It changes nothing.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 show (how many deliveries, and of those who wait, are listed), 2 dead (how many dead payloads are listed)
-- Returns {items that nobody has had, deliveries that are lent or due, dead items, server_us, list of deliveries: name, number (0 of what is to be delivered again), ms until its end (0: it is due), list of those who wait, list of dead payloads}.
local show = tonumber(ARGV[1])
local listed = {}
local members = show > 0 and redis.call('ZRANGE', KEYS[2], 0, show - 1, 'WITHSCORES') or {}
for at = 1, #members, 2 do
  -- To read the number copies the payload. Of what is to be delivered again it is not shown.
  local is_shown = not string.match(members[at], '^due:.*:')
  listed[#listed + 1] = members[at]
  listed[#listed + 1] = is_shown and content(members[at]) or 0
  listed[#listed + 1] = math.max(tonumber(members[at + 1]) - now_ms, 0)
end
local dead = tonumber(ARGV[2])
return {
  redis.call('LLEN', KEYS[1]),
  out(),
  redis.call('LLEN', KEYS[5]),
  now_us,
  listed,
  waiters(show),
  dead > 0 and redis.call('LRANGE', KEYS[5], 0, dead - 1) or {},
}
