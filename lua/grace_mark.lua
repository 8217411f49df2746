-- Tells since when clients have known this run of the server with this history of its data, and, in a cluster, with each of
-- its slots. The first of them notes it.
-- KEYS: 1 mark
-- ARGV: 1 run id, 2 history id, 3 the slots that the server owns (optional): `first-last`, separated by spaces
-- Returns {since, now}, by the server's clock in microseconds, and then first, last and since of each range of the slots.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local met = string.format('%s %s ', ARGV[1], ARGV[2])
local mark = redis.call('GET', KEYS[1]) or ''
local noted = string.sub(mark, 1, #met) == met and string.sub(mark, #met + 1) or ''
local since = tonumber(string.match(noted, '^%d+'))
-- One that is ahead was written before the clock was set back. Without one, it is another server's, which came with its data,
-- or that of another start or promotion.
if not since or since > now then
  since = now
  noted = ''
end

local reply = {since, now}
local ranges = {}
if ARGV[3] then
  local since_of = {}
  for first, last, at in string.gmatch(noted, '(%d+)%-(%d+)@(%d+)') do
    for slot = tonumber(first), tonumber(last) do
      since_of[slot] = math.min(tonumber(at), now)
    end
  end
  local add = function(first, last, at)
    table.insert(ranges, string.format(' %d-%d@%d', first, last, at))
    for _, number in ipairs({first, last, at}) do
      table.insert(reply, number)
    end
  end
  -- A slot that it did not have before has come from another server just now, and one that it has no more is forgotten.
  for first, last in string.gmatch(ARGV[3], '(%d+)%-(%d+)') do
    local from, final = tonumber(first), tonumber(last)
    for slot = from, final do
      local at = since_of[slot] or now
      if slot == final or (since_of[slot + 1] or now) ~= at then
        add(from, slot, at)
        from = slot + 1
      end
    end
  end
end
local text = string.format('%s%d%s', met, since, table.concat(ranges))
if text ~= mark then
  redis.call('SET', KEYS[1], text)
end
return reply
