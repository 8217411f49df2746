-- The permits of a semaphore on one server. The library puts this text, behind queue.lua, before the scripts that give
-- permits out or take them back. It reads how many are left and what time it is, and defines functions.
-- KEYS: 1 name (string: permits left), 2 holders (sorted set: permit -> its end, in ms of the server's clock), 3 queue (sorted set: entry -> order of arrival)
-- ARGV: none
-- Returns an error if the name holds no number, else nothing.
--
-- The first two keys are those of Redisson's RPermitExpirableSemaphore; its RSemaphore has the first one alone. A lease of
-- several permits has the members `id:1`, `id:2` and so on, and all of them end together. An entry of the queue is the text
-- `ttl_ms weight nonce id`. The messages are those of queue.lua; in the place of a token block, a grant says the weight.
--
-- What is left and what is out are all permits there are. Nothing is rolled back, so what is left is lowered before a
-- permit is written, and raised after one was removed: a script that ends half-way makes none, and loses none, unless Redisson has
-- taken back some of those that it gives back.

local text = redis.call('GET', KEYS[1])
-- nil: the semaphore does not exist.
-- Lua also reads numbers with a point or in other bases, which are no count of permits.
local left = text and #text < 16 and string.match(text, '^%-?%d+$') and tonumber(text) or nil
if text and not left then
  return redis.error_reply('WRONGTYPE the key holds no number of permits')
end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
-- Permits end in whole milliseconds: not before that time has come, and they are taken up to the next one.
local now_ms, next_ms = math.floor(now_us / 1000), math.ceil(now_us / 1000)
local _, tell_head, _, waiters, waiter, head = queue()

-- Writes how many are left.
local function put(number)
  left = number
  redis.call('SET', KEYS[1], number, 'KEEPTTL')
end

-- Returns how many are out.
local function out()
  local last = redis.call('ZRANGE', KEYS[2], -1, -1)[1]
  return last and redis.call('ZRANK', KEYS[2], last) + 1 or 0
end

-- Returns the members of a lease. A permit of Redisson is 16 bytes, and `id` has their digits.
local function members(id, weight)
  if not string.find(id, ':', 1, true) then
    local function byte(digits)
      return string.char(tonumber(digits, 16))
    end
    return {(string.gsub(id, '%x%x', byte))}
  end
  local own = {}
  for number = 1, weight do
    own[number] = string.format('%s:%d', id, number)
  end
  return own
end

-- Returns those of these that are out.
local function there(own)
  local found = {}
  for _, member in ipairs(own) do
    if redis.call('ZRANK', KEYS[2], member) then
      found[#found + 1] = member
    end
  end
  return found
end

-- Has permits end `ttl_ms` from now; no end that is there comes sooner. Returns an error, or a number.
local function write(own, ttl_ms)
  -- A full server refuses a ZADD, but not behind another write of the same script. While a cluster moves the slot, it
  -- refuses to look for what is gone.
  local refused = redis.pcall('ZREM', KEYS[2], '')
  if type(refused) == 'table' then
    return refused
  end
  local ends_ms = next_ms + ttl_ms
  local places = {}
  for _, member in ipairs(own) do
    places[#places + 1] = ends_ms
    places[#places + 1] = member
  end
  return redis.pcall('ZADD', KEYS[2], 'GT', unpack(places))
end

-- Gives permits to a lease. Returns an error, or nothing.
local function give(id, weight, ttl_ms)
  put(left - weight)
  local written = write(members(id, weight), ttl_ms)
  if type(written) == 'table' then
    put(left + weight)
    return written
  end
  -- In Redisson a semaphore may have an end of its own, and loses it when Java adds permits. Its permits must not end then: a far
  -- end needs no other right.
  local pttl = redis.call('PTTL', KEYS[1])
  if pttl > 0 then
    redis.call('PEXPIRE', KEYS[2], pttl)
  elseif redis.call('PTTL', KEYS[2]) > 0 then
    redis.call('PEXPIRE', KEYS[2], 31536000000)
  end
end

-- Takes back those of these permits that are out, and returns how many there were. A semaphore that does not exist is not
-- made by that: who makes it sees what is out.
local function take_back(own)
  local count = #own > 0 and redis.call('ZREM', KEYS[2], unpack(own)) or 0
  if count > 0 and left then
    local raised = left + count
    if redis.pcall('SET', KEYS[1], raised, 'KEEPTTL').err then
      -- This user may not do that now. They stay out, and end at once, so that somebody takes them back later.
      if count == #own then
        write(own, 0)
      end
      put(raised) -- fails
    end
    left = raised
  end
  return count
end

-- Takes back the permits that have ended, and returns how many there were, and their members.
local function sweep()
  local ended = redis.call('ZRANGE', KEYS[2], '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1000)
  return #ended > 0 and take_back(ended) or 0, ended
end

-- Returns a permit's holder as text, and whether it is of this library.
local function holder_of(member)
  local id = #member > 36 and string.match(member, '^(.*):%d+$')
  if id then
    return id, true
  end
  local function digits(byte)
    return string.format('%02x', string.byte(byte))
  end
  return (string.gsub(member, '.', digits)), false
end

-- Returns a holder, and for how many ms (-1: for ever) the permit still lasts that ends first. Holders of another library
-- are named first: of their releases only the channel tells. `unknown` is one, too: it has permits that are not in the set,
-- if fewer than `initial` are accounted for, or there is none. The third value is true of a holder of another library.
local function holder(initial)
  local first = redis.call('ZRANGE', KEYS[2], 0, 99, 'WITHSCORES')
  local ends_ms = tonumber(first[2])
  -- That number means never in Redisson.
  local pttl = ends_ms and ends_ms < 922337203685477 and math.max(ends_ms - next_ms, 0) or -1
  if not ends_ms or initial and left and left + out() < initial then
    return 'unknown', pttl, true
  end
  for at = 1, #first, 2 do
    local name, is_ours = holder_of(first[at])
    if not is_ours then
      return name, pttl, true
    end
  end
  return (holder_of(first[1])), pttl
end

-- The mailbox that `serve` gave permits to last.
local granted

-- Tells the first in the queue that it is the first, and how long to wait at most before it asks.
local function tell_first(initial)
  local name, pttl = holder(initial)
  tell_head(name, pttl, granted)
end

-- Gives permits to the first in the queue, as long as there are enough for it, and passes over those that are gone. It ends
-- at `mine`, to which it gives nothing. Returns the first that is in the queue then, nil if nobody is left, and whether
-- another one was the first before.
local function serve(mine)
  local moved = false
  granted = nil
  while passed < most do
    local entry = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not entry or entry == mine then
      return entry, moved
    end
    local mailbox, id, ttl_ms, weight = waiter(entry)
    if mailbox and (left or 0) < weight then
      return entry, moved
    end
    redis.call('ZREM', KEYS[3], entry)
    moved = true
    if not mailbox then
      passed = passed + 1
    else
      -- Short, so that a stopped process costs the others little. A client that is well renews it in time.
      ttl_ms = math.min(ttl_ms, 2000)
      if give(id, weight, ttl_ms) then
        return nil, moved
      end
      local told =
        redis.pcall('PUBLISH', mailbox, string.format('grant %s %d %d %d', id, now_us, ttl_ms, weight))
      if type(told) ~= 'number' then
        -- This user may not write to that mailbox: nobody knows of the grant.
        take_back(members(id, weight))
        most = most - 1
      else
        granted = mailbox
      end
    end
  end
  return nil, moved
end
