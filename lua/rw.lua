-- The read-write lock on one server: Redisson's RReadWriteLock, with a queue and tokens. The library puts this text before
-- the scripts of that lock, and it only defines functions. Over several servers there is no queue: they get no third key.
-- There, a writer that waits has a reservation instead, which new readers respect.
-- KEYS: 1 name (hash: mode -> read or write; id -> 1 for each reader; id:write -> hold count of the writer), 2 token (fencing counter), 3 queue (optional; sorted set: entry -> order of arrival)
-- ARGV: 5 retention_ms of the counter (0: for ever)
-- Returns nothing.
--
-- A reader of ours has an end of its own, which is that of a key beside the lock. Without it the reader is gone, whatever the
-- hash says. Redisson has such a key for each level of a reader, but some versions renew the hash and not these keys. So a
-- reader of another library reads for as long as the hash has its field.
--
-- Entries, mailboxes and messages are those of queue.lua; the entry of a reader has block 0, since readers take no tokens: they
-- have that of the last writer. A grant to a writer ends with one more number, the last token before its block, unless there
-- was none.

-- The key that ends with a reader.
local function end_key(id, level)
  local prefix = string.find(KEYS[1], '{', 1, true) and KEYS[1] or table.concat({'{', KEYS[1], '}'})
  return table.concat({prefix, ':', id, ':rwlock_timeout:', level})
end

-- The key of the reservation: the id of the writer that was refused last. It asks again before this ends. On one server it is
-- the name of the lock's channel: one who listens there may take the lock.
local function next_key()
  -- Not by `%s`, which ends at a zero byte.
  return table.concat(string.find(KEYS[1], '{', 1, true) and {'leasehold_next::', KEYS[1]} or {'leasehold_next:{', KEYS[1], '}'})
end

-- The field of the hash that a lease has.
local function field_of(id, reads)
  return reads and id or table.concat({id, ':write'})
end

-- Whether an id is that of another library.
local function is_foreign(id)
  return not string.match(id, ':%x+%-%x+%-%x+%-%x+%-%x+$')
end

-- Fails if the lock is in a slot that is being moved and this key of it is not here: the other node may have it. Such a node
-- answers for a key that it lacks as if there were none, unless it is asked for together with one that it has.
local function must_be_gone(key)
  redis.call('EXISTS', KEYS[1], key)
end

-- Returns for how long a reader that is in the hash reads still; nil if it is gone.
local function reads_for(id)
  if is_foreign(id) then
    return redis.call('PTTL', KEYS[1])
  end
  local pttl = redis.call('PTTL', end_key(id, 1))
  return pttl ~= -2 and pttl or nil
end

-- Returns the ids of the readers in the hash, or of some, if there are more than `count`. With them it returns whether these
-- are all.
local function readers(count)
  local fields = redis.call('HRANDFIELD', KEYS[1], count, 'WITHVALUES')
  local ids = {}
  for i = 1, #fields, 2 do
    if tonumber(fields[i + 1]) and string.sub(fields[i], -6) ~= ':write' then
      ids[#ids + 1] = fields[i]
    end
  end
  return ids, #fields < 2 * count
end

-- Returns a reader that is not gone, and for how long it reads still; nil if there is none. It looks at few of many, so it may
-- name one of ours where another library has readers, too: then that one tells who waits when it leaves, or they ask at its
-- end. Where it meets only readers that are gone, it deletes them: nobody has to pass over them twice.
local function live_reader()
  local count = 3
  while true do
    local ids, are_all = readers(count)
    for _, id in ipairs(ids) do
      local pttl = reads_for(id)
      if pttl then
        return id, pttl
      end
    end
    if ids[1] then
      must_be_gone(end_key(ids[1], 1))
    end
    for _, id in ipairs(ids) do
      redis.call('HDEL', KEYS[1], id)
    end
    if are_all then
      return nil
    end
    -- More each time: what is no reader stays, and must not be all that is met.
    count = 2 * count
  end
end

-- Returns the one of the readers that are not gone that other servers name, too, and for how long it reads still.
local function first_reader()
  local first, left
  for _, id in ipairs((readers(100000))) do
    local pttl = (not first or id < first) and reads_for(id)
    if pttl then
      first, left = id, pttl
    end
  end
  return first, left
end

-- The lock's channel and how its listeners are counted, which a script sets that lets in who waits; and whether it has given
-- the lock to anybody.
local channel, numsub
local took = false

-- Whether a reader stays out although readers of ours are there, of whom it was given one. While somebody listens on the
-- channel, who may be a writer of Redisson, it does so for 5 of every 6 s: that writer stands in no queue, and gets in only
-- if the readers end. Whoever comes in with others that came in just now does not stay out, nor does who finds a reader of
-- Redisson: others of those would keep that writer out all the same.
local function stays_out(reader)
  if took or not KEYS[3] or is_foreign(reader) or redis.call('PUBSUB', numsub, channel)[2] == 0 then
    return false
  end
  return redis.call('TIME')[1] % 6 < 5
end

-- When a reader that stays out asks again at the latest: the listener may be gone by then.
local out_ms = 500

-- Returns how the lock is held: 'read', 'write', or false. What readers left that are gone is deleted. With 'read' it returns
-- one who reads, and for how long still.
local function mode_now()
  local mode = redis.call('HGET', KEYS[1], 'mode')
  if mode ~= 'read' then
    return mode
  end
  local id, pttl = live_reader()
  if not id then
    redis.call('DEL', KEYS[1])
    return false
  end
  return mode, id, pttl
end

-- Returns who holds the lock, or one of those who read, and for how long still.
local function holder(mode)
  if mode == 'read' then
    if KEYS[3] then
      return live_reader()
    end
    return first_reader()
  end
  for _, field in ipairs(redis.call('HRANDFIELD', KEYS[1], 100000)) do
    local id = string.match(field, '^(.*):write$')
    if id then
      return id, redis.call('PTTL', KEYS[1])
    end
  end
  return 'mode', redis.call('PTTL', KEYS[1])
end

-- Gives the lock to a lease. Returns the end of its token block, for a reader its token; the server's time before the lease
-- began; and the last token before the block, if there was one.
local function take(id, reads, count, ttl_ms, block, grain_us)
  took = true
  -- Tokens as in queue.lua. A token goes to redis.call as a number: made text by Lua it would lose its last digits.
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local start = now - now % grain_us
  local last = reads and tonumber(redis.call('GET', KEYS[2]))
  local before
  if not last then
    last = start + block
    if ARGV[5] == '0' then
      before = redis.call('SET', KEYS[2], last, 'GET')
    else
      before = redis.call('SET', KEYS[2], last, 'PX', ARGV[5], 'GET')
    end
    before = tonumber(before)
    if before and before > start then
      last = before + block
      redis.call('SET', KEYS[2], last, 'KEEPTTL')
    end
  end

  if reads then
    redis.call('SET', end_key(id, 1), '1', 'PX', ttl_ms)
    redis.call('HSET', KEYS[1], 'mode', 'read', id, 1)
  else
    redis.call('HSET', KEYS[1], 'mode', 'write', field_of(id), count)
  end
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl_ms) then
    local expiry = redis.pcall('PEXPIRE', KEYS[1], ttl_ms)
    if type(expiry) == 'table' then
      -- Nothing is rolled back: a lock that could not be given an end must not stay. The second call ends the script with
      -- the error of the first.
      redis.call('HDEL', KEYS[1], field_of(id, reads))
      if not live_reader() then
        redis.call('DEL', KEYS[1])
      end
      redis.call('PEXPIRE', KEYS[1], ttl_ms)
      return nil
    end
  end
  return last, now, before
end

-- How many entries were taken out of the queue because their clients are gone, and how many a run takes out at most: as in
-- queue.lua, those who ask next take out the rest, and need not wait for who is behind it.
local passed, most = 0, 500

-- Who waits behind an entry: mailbox, id, ttl_ms, block. There is no mailbox if nobody hears it: the client is gone.
local function waiter(entry)
  local ttl_ms, block, nonce, id, client = string.match(entry, '^(%d+) (%d+) (%x+) (([^:]*):.*)$')
  if not id then
    return nil
  end
  local mailbox = string.format('leasehold_mailbox:%s:%s', client, nonce)
  -- Asked before anything is written. The count of PUBLISH would include those who subscribe to a pattern.
  local is_heard = redis.call('PUBSUB', 'NUMSUB', mailbox)[2] > 0
  return is_heard and mailbox, id, tonumber(ttl_ms), tonumber(block)
end

-- Lets in as many of those who wait as the lock has room for, in their order: the first writer, or all readers before it.
-- Passes over those that are gone. Then it tells the first of those that go on waiting, if it has changed; with `tells`,
-- in any case. `mine` is taken out in its turn, but granted nothing. Returns the first entry that it did not grant, `mine`
-- included, and how the lock is held now; no entry if nobody is left.
local function pump(mine, tells)
  local mode, reader
  while passed < most do
    local entry = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not entry then
      return nil, mode
    end
    local mailbox, id, ttl_ms, block = waiter(entry)
    if not mailbox and entry ~= mine then
      redis.call('ZREM', KEYS[3], entry)
      passed, tells = passed + 1, true
    else
      if mode == nil then
        mode, reader = mode_now()
      end
      local reads = block == 0
      local joins = reads and mode == 'read'
      if mode and not (joins and not stays_out(reader)) then
        if tells and mailbox then
          local by, pttl = holder(mode)
          pttl = joins and math.min(pttl, out_ms) or pttl
          redis.pcall('PUBLISH', mailbox, table.concat({'next', id, pttl, by}, ' '))
        end
        return entry, mode
      end
      redis.call('ZREM', KEYS[3], entry)
      if entry == mine then
        return entry, mode
      end
      -- Short, so that a stopped process at the head costs little. A client that is well renews it in time.
      ttl_ms = math.min(ttl_ms, 2000)
      local last, now, before = take(id, reads, 1, ttl_ms, block, 1)
      local letter = string.format('grant %s %d %d %d', id, now, ttl_ms, last)
      local told = redis.pcall('PUBLISH', mailbox, before and string.format('%s %d', letter, before) or letter)
      tells = true
      if type(told) == 'number' then
        mode = reads and 'read' or 'write'
      else
        -- This user may not write to that mailbox: nobody knows of the grant.
        redis.call('HDEL', KEYS[1], field_of(id, reads))
        if reads then
          redis.call('DEL', end_key(id, 1))
        end
        if not live_reader() then
          redis.call('DEL', KEYS[1])
        end
        mode, most = nil, most - 1
      end
    end
  end
  return nil, mode
end

-- Returns the first in the queue that is not gone, with its mailbox and id, and passes over those that are. `mine` is not.
-- Nothing if nobody is left.
local function head(mine)
  while passed < most do
    local entry = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not entry or entry == mine then
      return entry
    end
    local mailbox, id = waiter(entry)
    if mailbox then
      return entry, mailbox, id
    end
    redis.call('ZREM', KEYS[3], entry)
    passed = passed + 1
  end
end

-- Tells the first in the queue that the lock is free, but others may take it before; or who holds it, and for how long still.
local function tell(mailbox, id, by, pttl)
  redis.pcall('PUBLISH', mailbox, table.concat(by and {'next', id, pttl, by} or {'free', id}, ' '))
end

-- Takes an entry out of the queue, wherever it is. If it was the first, those behind it may come in.
local function leave(entry)
  local place = redis.call('ZRANK', KEYS[3], entry)
  if place then
    redis.call('ZREM', KEYS[3], entry)
  end
  if place == 0 then
    pump(nil, true)
  end
end

-- The first `show` in the queue as a flat list: the entry and the microsecond of the arrival of each.
local function waiters(show)
  return show > 0 and redis.call('ZRANGE', KEYS[3], 0, show - 1, 'WITHSCORES') or {}
end

-- Returns an error if the key is a hash, but not that of a read-write lock.
local function wrong_kind(mode)
  if not mode and redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the key is a lock of another kind')
  end
end

