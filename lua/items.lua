-- A queue of items on one server. The library puts this text, behind queue.lua, before the scripts that lend items or get them
-- back. It reads what time it is, and defines functions.
-- KEYS: 1 name (list: payloads that nobody has had yet), 2 lent (sorted set: delivery -> its end, in ms of the server's clock; with a half from a grant by message until it is renewed), 3 queue (sorted set: entry -> order of arrival of those who wait), 4 contents (hash: delivery -> `number at_us:payload`), 5 dead (list: payloads)
-- ARGV: none
-- Returns an error if the name holds no list, else nothing.
--
-- The first key is that of Redisson's RQueue. A delivery is the lease's id while somebody has the item, and `due:` with that
-- id after it was given back (or `due:` several times, if that name is taken): then its end is the time from which on it is delivered again. A delivery whose end has passed
-- is due, too. The number says how often the item was delivered. `at_us` is the server's time when it was lent: it tells what a
-- delivery is from what the same delivery was before, if a request for it runs late.
--
-- An entry of the queue is the text `ttl_ms how nonce id`. The messages are those of queue.lua; in the place of a token block,
-- a grant says `how`: 1, and 1 more to take the newest item, and 2 for each delivery that an item may have at most (0: any
-- number). A grant that brings the item along is another message, whose last part may be any bytes:
--   item id server_us ttl_ms how number at_us:payload
--
-- Nothing is rolled back. An item is written to its new place before it is removed from the old one, so that none is lost. What this
-- user may not run is found before anything is written (`may_move`), so that none is in two places.

redis.call('LLEN', KEYS[1])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
-- Leases end in whole milliseconds: not before that time has come, and they are given up to the next one.
local now_ms, next_ms = math.floor(now_us / 1000), math.ceil(now_us / 1000)
local _, tell_head, _, waiters, waiter, head = queue()

-- A message brings so many bytes along at most: what nobody reads in time fills the server's memory. Who gets a longer item by
-- a message asks for it.
local most_bytes = 8192

-- Returns how often what is lent under that name was delivered, its payload, its whole content, and the time when it was lent;
-- or nothing.
local function content(member)
  local text = redis.call('HGET', KEYS[4], member)
  local colon = text and string.find(text, ':', 1, true)
  if colon then
    local number, at = string.match(string.sub(text, 1, colon - 1), '^(%d+) (%d+)$')
    return tonumber(number), string.sub(text, colon + 1), text, at
  end
end

-- Fails if this user may not run what moves an item. The HSET, which is not tried, comes first of all. A full server refuses a
-- ZADD, but not behind another write of the same script.
local function may_move()
  redis.call('ZREM', KEYS[2], '')
  redis.call('HDEL', KEYS[4], '')
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
end

-- Writes an item under that name. Returns its content.
local function write(member, number, payload, ends_ms)
  -- Not by `%s`, which ends at a zero byte.
  local text = table.concat({string.format('%d %d:', number, now_us), payload})
  redis.call('HSET', KEYS[4], member, text)
  redis.call('ZADD', KEYS[2], ends_ms, member)
  return text
end

-- Removes what is lent under that name. Returns 1 if there was something.
local function remove(member)
  local count = redis.call('ZREM', KEYS[2], member)
  redis.call('HDEL', KEYS[4], member)
  return count
end

-- Returns what is lent, or due, that has or had its end first, and that end.
local function soonest()
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

-- Returns how many are lent or wait to be delivered again.
local function out()
  local last = redis.call('ZRANGE', KEYS[2], -1, -1)[1]
  return last and redis.call('ZRANK', KEYS[2], last) + 1 or 0
end

-- Whether what is due first was granted by a message that nobody has heeded: then its end has a half, which the first renewal takes
-- away. Only who asks gets it: that one lives. By messages it would go from one stopped worker to the next until it is dead.
local function is_unheeded()
  local due, ended_ms = soonest()
  return due and ended_ms <= now_ms and ended_ms % 1 ~= 0
end

-- Whether `lend` ended before it had looked at all that is due.
local is_cut_short = false

-- Lends an item: what is due, else the oldest or the newest that nobody has had yet. What was delivered too often is dead.
-- Returns its number, payload and content, or nothing if there is none now.
local function lend(id, ttl_ms, how, by_message)
  local newest, most_often, bytes = how % 2 == 0, math.floor((how - 1) / 2), 0
  local ends_ms = next_ms + ttl_ms + (by_message and 0.5 or 0)
  for _ = 1, 100 do
    local due, ended_ms = soonest()
    local is_due = due and ended_ms <= now_ms and not (by_message and ended_ms % 1 ~= 0)
    may_move()
    if not is_due then
      local payload = redis.call('LINDEX', KEYS[1], newest and -1 or 0)
      if not payload then
        return
      end
      local text = write(id, 1, payload, ends_ms)
      local popped
      if newest then
        popped = redis.pcall('RPOP', KEYS[1])
      else
        popped = redis.pcall('LPOP', KEYS[1])
      end
      if type(popped) == 'table' then
        -- This user may not remove it: nobody gets it.
        remove(id)
        return nil, popped
      end
      return 1, payload, text
    end
    local number, payload = content(due)
    local text
    if number and most_often > 0 and number >= most_often then
      redis.call('RPUSH', KEYS[5], payload)
    elseif number then
      text = write(id, number + 1, payload, ends_ms)
    end
    remove(due)
    if text then
      return number + 1, payload, text
    end
    -- To copy large ones keeps the server from all others. Who asks next goes on.
    bytes = bytes + (number and #payload or 0)
    if bytes > 16777216 then
      break
    end
  end
  is_cut_short = true
end

-- Has an item fall due at that time, and be delivered again.
local function fall_due(id, number, payload, due_ms)
  local due = string.format('due:%s', id)
  -- A request that ran late may have been lent another item under the same id.
  while content(due) do
    due = string.format('due:%s', due)
  end
  write(due, number, payload, due_ms)
  remove(id)
end

-- Returns who has an item, or had it, and for how many ms still before it can be delivered again (-1: nobody has one; 0, too: not
-- all that is due was looked at). If nobody has one, `id` takes the place.
local function holder(id)
  local first, ends_ms = soonest()
  if is_cut_short then
    return first or id, 0
  elseif not first then
    return id, -1
  end
  return first, math.max(ends_ms - next_ms, 0)
end

-- The mailbox that `serve` lent an item to last.
local granted

-- Tells the first in the queue that it is the first, and how long to wait at most before it asks.
local function tell_first()
  local _, mailbox, id = head()
  if mailbox then
    local name, pttl = holder(id)
    tell_head(name, pttl, granted)
  end
end

-- Lends items to those who wait, in their order, and passes over those that are gone. It ends at `mine`, to which it lends
-- nothing. Returns the first that is in the queue then, nil if nobody is left, and whether another one was the first before.
local function serve(mine)
  -- Otherwise what is due would be delivered to each place of a client that stands still, in vain.
  local moved = pass_over_silent(waiter, mine, function()
    return redis.call('ZRANGE', KEYS[2], '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)
  end)
  granted = nil
  while passed < most do
    local entry = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not entry or entry == mine then
      return entry, moved
    end
    local mailbox, id, ttl_ms, how = waiter(entry)
    if not mailbox then
      passed = passed + 1
    else
      -- Short, so that a stopped process costs the others little. A client that is well renews it in time.
      ttl_ms = math.min(ttl_ms, 2000)
      local number, payload, text = lend(id, ttl_ms, how, true)
      if not number then
        return entry, moved
      end
      local grant = string.format('%s %d %d %d', id, now_us, ttl_ms, how)
      local message
      if #payload > most_bytes then
        message = string.format('grant %s', grant)
      else
        message = table.concat({'item ', grant, ' ', text})
      end
      local told = redis.pcall('PUBLISH', mailbox, message)
      if type(told) ~= 'number' then
        -- This user may not write to that mailbox: nobody knows of the grant.
        fall_due(id, number - 1, payload, 0)
        most = most - 1
      else
        granted = mailbox
      end
    end
    redis.call('ZREM', KEYS[3], entry)
    moved = true
  end
  return nil, moved
end
