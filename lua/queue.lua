-- The queue of those who wait for a lock on one server. The library puts this text, behind take.lua, into the scripts that grant
-- a lock, and it only defines functions: few, since each of them costs every run. Over several servers there is no queue:
-- those scripts get no third key.
-- KEYS: 1 name (hash: lease id -> hold count), 3 queue (sorted set: entry -> order of arrival)
-- ARGV: none
-- Returns nothing.
--
-- An entry is the text `ttl_ms block nonce id`, always the same for one id. An id is `client:uuid`. The mailbox
-- `leasehold_mailbox:client:nonce` is the channel of the client that waits. It is told:
--   grant id server_us ttl_ms block_end   the lease holds the lock, from that time of the server on for that long
--   next id pttl_ms holder                it is the first in the queue now; the holder has the lock for so long still
--   free id                               it is the first, and the lock is free, but others may take it before
--   wanted id                             the lease holds the lock, and the first in the queue has asked for it
-- Who is told nothing has timers. So a message may be lost, but none is sent about what was not written before.

-- How many entries were taken out of the queue because their clients are gone, and how many a run takes out at most: it
-- keeps the server from all others. Where more are gone, those who ask next take out the rest, and need not wait for
-- who is behind it: each ask takes the lock if it finds nobody who lives. One that this user may not write to counts, too.
local passed, most = 0, 500

-- Returns the functions of the queue. Most runs need none of them.
local function queue()
  -- Whether an id is that of another library.
  local function is_foreign(id)
    return not string.match(id, ':%x+%-%x+%-%x+%-%x+%-%x+$')
  end

  -- Who waits behind an entry: mailbox, id, ttl_ms, block. Nothing if nobody hears the mailbox: the client is gone.
  local function waiter(entry)
    local ttl_ms, block, nonce, id, client = string.match(entry, '^(%d+) (%d+) (%x+) (([^:]*):.*)$')
    if not id then
      return nil
    end
    local mailbox = string.format('leasehold_mailbox:%s:%s', client, nonce)
    -- Asked before anything is written. The count of PUBLISH would include those who subscribe to a pattern.
    if redis.call('PUBSUB', 'NUMSUB', mailbox)[2] == 0 then
      return nil
    end
    return mailbox, id, tonumber(ttl_ms), tonumber(block)
  end

  -- Returns the first in the queue that is not gone, with its mailbox, its id and its score, and passes over those that are.
  -- `mine` is not. Nothing if nobody is left.
  local function head(mine)
    while passed < most do
      local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
      local entry = first[1]
      if not entry or entry == mine then
        return entry
      end
      local mailbox, id = waiter(entry)
      if mailbox then
        return entry, mailbox, id, tonumber(first[2])
      end
      redis.call('ZREM', KEYS[3], entry)
      passed = passed + 1
    end
  end

  -- Tells the first in the queue that it is the first, and passes over those that are gone. The caller may say who
  -- holds the lock, and for how long still, and the mailbox that it was granted to by message.
  local function tell_head(holder, pttl, granted)
    local entry, mailbox, id, score = head()
    if not mailbox then
      return
    end
    -- Its score has a half while the last grant went to the same client by message, and nobody has given back since what
    -- was granted; see silent.lua.
    local half = mailbox == granted and 0.5 or 0
    if score % 1 ~= half then
      redis.pcall('ZADD', KEYS[3], string.format('%.1f', math.floor(score) + half), entry)
    end
    pttl = pttl or redis.call('PTTL', KEYS[1])
    local message = string.format('free %s', id)
    if pttl ~= -2 then
      holder = holder or redis.call('HRANDFIELD', KEYS[1])
      message = string.format('next %s %d %s', id, pttl, holder)
    end
    redis.pcall('PUBLISH', mailbox, message)
  end

  -- Grants a free lock to the first in the queue, and passes over those that are gone. Returns the entry that is out of
  -- the queue for it: `mine`, to which it grants nothing, or the one that holds the lock now; nil if nobody is left.
  local function pump(mine)
    while passed < most do
      local entry = redis.call('ZPOPMIN', KEYS[3])[1]
      if not entry or entry == mine then
        return entry
      end
      local mailbox, id, ttl_ms, block = waiter(entry)
      if not mailbox then
        passed = passed + 1
      else
        -- Short, so that a stopped process at the head costs little. A client that is well renews it in time.
        ttl_ms = math.min(ttl_ms, 2000)
        local last, now = take(id, ttl_ms, block)
        -- The server sends first what was published last, and the new holder should not have to wait.
        tell_head(id, ttl_ms, mailbox)
        local told =
          redis.pcall('PUBLISH', mailbox, string.format('grant %s %d %d %d', id, now, ttl_ms, last))
        if type(told) == 'number' then
          return entry
        end
        -- This user may not write to that mailbox: nobody knows of the grant. It goes on to whoever was told to be next.
        redis.call('DEL', KEYS[1])
        most = most - 1
      end
    end
  end

  -- Takes an entry out of the queue, wherever it is. If it was the first, another one is now.
  local function leave(entry)
    local place = redis.call('ZRANK', KEYS[3], entry)
    if place then
      redis.call('ZREM', KEYS[3], entry)
    end
    if place == 0 then
      tell_head()
    end
  end

  -- The first `show` in the queue as a flat list: the entry and the microsecond of the arrival of each.
  local function waiters(show)
    return show > 0 and redis.call('ZRANGE', KEYS[3], 0, show - 1, 'WITHSCORES') or {}
  end

  return pump, tell_head, leave, waiters, waiter, head, is_foreign
end

