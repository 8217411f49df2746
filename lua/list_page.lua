-- Looks through a part of the server's keys for those of locks. Changes nothing. Its keys may be in any slot.
-- KEYS: none
-- ARGV: 1 cursor (0: the beginning), 2 count (how many keys are looked at, more or less), 3 pattern of the keys, 4 type of the keys (hash or zset)
-- Returns {next cursor (0: that was the end), keys on the server (-1: this user may not know), microseconds that it took (0: unknown), list of what was found: key, and kind, of each}. A hash that is no lock is left out; others are lock, rw, or unknown while a cluster moves the slot. A sorted set is any, whatever it holds.

-- From 7.2 on the server's time stands still in a script, but there is os.clock.
local os = rawget(_G, 'os')
local function clock_us()
  if os then
    return math.floor(os.clock() * 1000000)
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local ours = '^[%w._-]+:%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$'
local redissons = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'

-- Nothing if it is no lock, or if this user may not read it.
local function kind_of(key)
  local fields = redis.pcall('HLEN', key)
  if fields == 1 then
    local field = redis.call('HRANDFIELD', key)
    return (string.find(field, ours) or string.find(field, redissons)) and 'lock'
  elseif type(fields) == 'number' then
    local mode = redis.call('HGET', key, 'mode')
    return (mode == 'read' or mode == 'write') and 'rw'
  end
  return string.find(fields.err, 'non local key', 1, true) and 'unknown'
end

local began_us = clock_us()
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[3], 'COUNT', ARGV[2], 'TYPE', ARGV[4])
local found = {}
for _, key in ipairs(page[2]) do
  local kind = ARGV[4] == 'zset' and 'any' or kind_of(key)
  if kind then
    found[#found + 1] = key
    found[#found + 1] = kind
  end
end
local size = redis.pcall('DBSIZE')
return {page[1], type(size) == 'number' and size or -1, clock_us() - began_us, found}
