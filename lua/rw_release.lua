-- Ends a reader or the writer of a read-write lock if this lease is one, and lets in those whose turn it is, or tells
-- those who wait. A lease that waits in the queue leaves it; over several servers, its reservation ends. With keep_ms the
-- lease keeps its part for that long at most, and ends by itself.
-- KEYS: 1 name (hash), 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 publish verb, 3 channel of the lock, 4 side (read or write), 5 retention_ms of the counter (0: for ever), 6 entry (empty: it has not queued, or keeps its reservation), 7 granted (1: this lease was granted by message), 8 keep_ms (optional; 0: none; never lengthens what the lease has)
-- Returns {1, receivers of the message on the channel}, or {0, 0} when the lease does not hold the lock. A third number says how many in the queue were gone and passed over, if any were.
channel, numsub = ARGV[3], ARGV[2] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local reads = ARGV[4] == 'read'
local entry = KEYS[3] and ARGV[6] ~= '' and ARGV[6]
local function reply(held, receivers)
  -- The list ends before a nil.
  return {held, receivers, passed > 0 and passed or nil}
end

local field, own_end = field_of(ARGV[1], reads), reads and end_key(ARGV[1], 1) or KEYS[1]
local keeps = ARGV[8] and ARGV[8] ~= '0' and redis.pcall('HEXISTS', KEYS[1], field) == 1
if keeps and redis.call('PTTL', own_end) == -2 then
  must_be_gone(own_end)
  keeps = false
end
local held = 1
if not keeps then
  if reads then
    redis.pcall('DEL', own_end)
  end
  held = redis.pcall('HDEL', KEYS[1], field)
end
local is_reserved = not KEYS[3] and ARGV[6] ~= '' and redis.pcall('GET', next_key()) == ARGV[1]
if is_reserved then
  redis.call('DEL', next_key())
end
if held ~= 1 then
  if entry then
    leave(entry)
  end
  if is_reserved and redis.pcall('HGET', KEYS[1], 'mode') ~= 'write' then
    -- Readers may come in.
    redis.pcall(ARGV[2], channel, '1')
  end
  return held == 0 and reply(0, 0) or held
end

if keeps then
  local function shorten(key)
    if redis.call('PTTL', key) > tonumber(ARGV[8]) then
      redis.call('PEXPIRE', key, ARGV[8])
    end
  end
  if reads then
    shorten(own_end)
  end
  -- That of the hash is the writer's, and what Redisson goes by. With two fields nobody else has a part in it.
  if redis.call('HLEN', KEYS[1]) == 2 then
    shorten(KEYS[1])
  end
  if KEYS[3] then
    pump(nil, true)
  end
  return reply(1, 0)
end

-- While a cluster moves the slot, it refuses to look for what is gone: then somebody may read still, until the hash ends.
local is_waited_for = KEYS[3] and redis.call('EXISTS', KEYS[3]) == 1
local is_known, other = pcall(live_reader)
if not is_known or other then
  if not reads then
    redis.call('HSET', KEYS[1], 'mode', 'read')
  end
  if entry then
    leave(entry)
  end
  if is_known and is_waited_for and is_foreign(other) then
    -- Redisson's readers come in unheard. From now on, the first in the queue has to listen to them. The lease has ended
    -- whatever becomes of that.
    pcall(pump, nil, true)
  end
  return reply(1, 0)
end
redis.call('DEL', KEYS[1])

local mode = false
-- While a cluster moves the slot, it refuses to make anew what is gone: then nobody is let in, and the queue stays as it is.
if is_waited_for and redis.pcall('EXISTS', KEYS[1]) == 0 then
  -- Redisson's waiters listen to the channel and are in no queue. Every second turn is open to them, and the one for which
  -- a reader stayed out while others read.
  local first, mailbox, id = head()
  local stayed_out = reads and first and string.match(first, '^%d+ 0 ')
  if (ARGV[7] == '1' or stayed_out) and redis.call('PUBSUB', numsub, channel)[2] > 0 then
    if stayed_out then
      -- Long enough for a process that is busy, or far away.
      redis.pcall('SET', next_key(), channel, 'PX', 100)
    end
    if mailbox then
      tell(mailbox, id)
    end
  else
    mode = select(2, pump(nil, true))
  end
end
-- The lock is free whatever becomes of the message: waiters have their timers. Redisson's readers may join ours.
local receivers = mode ~= 'write' and redis.pcall(ARGV[2], channel, reads and '0' or '1')
return reply(1, not mode and type(receivers) == 'number' and receivers or 0)
