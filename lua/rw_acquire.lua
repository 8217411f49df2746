-- Takes one side of a read-write lock if it is free for it and nobody is ahead in the queue. Sent again for the same lease
-- it confirms the lease and takes nothing new. Otherwise it queues, if it has an entry; it does so once, however often it
-- is sent. With `from` it makes a reader of that writer instead, or is refused. Over several servers, a writer with an entry
-- that is refused keeps new readers out: until it is released, another writer gets the lock or reserves it, or for 5 s.
-- KEYS: 1 name (hash), 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 count, 3 ttl_ms, 4 block (how many tokens; 0 for a reader), 5 retention_ms of the counter (0: for ever), 6 grain_us (the time is rounded down to it), 7 channel of the lock, 8 entry (empty: does not queue, and reserves nothing), 9 show (how many of those who wait are listed), 10 count (NUMSUB or SHARDNUMSUB), 11 side (read or write), 12 publish verb, 13 from (optional: the id of a writer)
-- Returns {1, end of the token block, or a reader's token} when it is held, with the last token before the block as a third number if it was taken now for writing, {0, pttl, holder, subscribers of the channel} when another holds it, or is the first to get it. With a queue a refusal goes on: place (-1: not queued, 0: the first), server_us, list of those who wait.
local reads = ARGV[11] == 'read'
local field = field_of(ARGV[1], reads)
local entry = KEYS[3] and ARGV[8] ~= '' and ARGV[8]
channel, numsub = ARGV[7], ARGV[10]
local mode, reader, reads_for_ms = mode_now()
local wrong = wrong_kind(mode)
if wrong then
  return wrong
end

if mode and redis.call('HEXISTS', KEYS[1], field) == 1 then
  local last = tonumber(redis.call('GET', KEYS[2]))
  if last then
    if reads and redis.call('PTTL', end_key(ARGV[1], 1)) < tonumber(ARGV[3]) then
      redis.call('SET', end_key(ARGV[1], 1), '1', 'PX', ARGV[3])
    end
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[3])
    end
  else
    -- A reader's end comes no sooner by that.
    local ttl_ms = math.max(tonumber(ARGV[3]), reads and redis.call('PTTL', end_key(ARGV[1], 1)) or 0)
    last = take(ARGV[1], reads, ARGV[2], ttl_ms, ARGV[4], ARGV[6])
  end
  if entry then
    leave(entry)
  end
  return {1, last}
end

local function granted(last, _, before)
  -- The list ends before a nil.
  return {1, last, before}
end

local fits = not mode or (reads and mode == 'read')
local is_out = mode and fits and not ARGV[13] and stays_out(reader)
local is_waited_for = KEYS[3] and fits and redis.call('EXISTS', KEYS[3]) == 1
local is_reserved = reads and not ARGV[13] and (not KEYS[3] or (is_waited_for and not mode))
local reserved = is_reserved and redis.pcall('GET', next_key())
if type(reserved) == 'table' then
  -- On one server a user may lack the right to that key: then nothing is reserved.
  reserved = false
end
if ARGV[13] then
  if mode == 'write' and redis.call('HEXISTS', KEYS[1], field_of(ARGV[13])) == 1 then
    -- The reader comes first: half-way, the lock has a reader, and a writer whose release is still to come.
    -- A full server refuses a SET, but not behind another write of the same script.
    redis.call('HDEL', KEYS[1], '')
    local last = take(ARGV[1], true, 1, ARGV[3], 0, ARGV[6])
    redis.call('HDEL', KEYS[1], field_of(ARGV[13]))
    if KEYS[3] then
      pump(nil, true)
    end
    redis.pcall(ARGV[12], channel, '1')
    return {1, last}
  end
elseif fits and not is_out and not reserved and not is_waited_for then
  if not KEYS[3] and not reads then
    redis.call('DEL', next_key())
  end
  return granted(take(ARGV[1], reads, ARGV[2], ARGV[3], ARGV[4], ARGV[6]))
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local was_queued = false
if entry then
  was_queued = redis.call('ZRANK', KEYS[3], entry) ~= false
  if not was_queued then
    -- Behind all others, also if the clock was set back. A full server may refuse it: then it is not queued.
    local newest = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    redis.pcall('ZADD', KEYS[3], math.max(now, tonumber(newest or 0) + 1), entry)
  end
  redis.call('PEXPIRE', KEYS[3], 60000)
end
-- Behind a writer it needs none, and two writers that take turns would keep all readers out.
if not KEYS[3] and ARGV[8] ~= '' and mode ~= 'write' then
  -- A full server may refuse it: then it waits for a gap between readers.
  redis.pcall('SET', next_key(), ARGV[1], 'PX', 5000)
end
local subscribers = redis.call('PUBSUB', numsub, channel)[2]
-- It may be free for a moment, so that Redisson's waiters on the channel can take it. A newcomer must not end that moment,
-- unless the one who was told of it is gone, and nobody else waits.
local is_open = KEYS[3] and not mode and not was_queued and subscribers > 0
if is_open then
  local first, mailbox, id = head(entry)
  is_open = first and first ~= entry
  if is_open and passed > 0 then
    tell(mailbox, id)
  end
end
if KEYS[3] and fits and not is_open and not reserved and not ARGV[13] then
  local first, after = pump(entry)
  if after == nil then
    after = mode_now()
  end
  mode = after
  if (entry and first == entry and redis.call('ZRANK', KEYS[3], entry) == false)
    or (not first and not is_out and (not mode or (reads and mode == 'read'))) then
    if entry and not first then
      redis.call('ZREM', KEYS[3], entry)
    end
    local taken = granted(take(ARGV[1], reads, ARGV[2], ARGV[3], ARGV[4], ARGV[6]))
    pump(nil, true)
    return taken
  end
end

local by, pttl
local first = KEYS[3] and waiters(1)[1]
if reserved and fits then
  by, pttl = reserved, redis.call('PTTL', next_key())
elseif is_out and (not first or first == entry) then
  by, pttl = reader, math.min(reads_for_ms, out_ms)
elseif reader and KEYS[3] and not (reads and first) then
  by, pttl = reader, reads_for_ms
elseif mode and not (reads and mode == 'read' and first) then
  by, pttl = holder(mode)
else
  -- The first in the queue is to get it.
  by = first and string.match(first, '[^ ]+$') or ARGV[13] or 'mode'
  pttl = mode and redis.call('PTTL', KEYS[1]) or 0
end
if was_queued and mode and not fits and is_foreign(by) then
  -- Only the first hears of the release of another library's client, and it may be gone. One that has just come is not taken
  -- for that: only who waits for longer looks.
  local _, mailbox, id = head(entry)
  if mailbox and passed > 0 then
    tell(mailbox, id, by, pttl)
  end
end
local refusal = {0, pttl, by, subscribers}
if KEYS[3] then
  refusal[5] = entry and redis.call('ZRANK', KEYS[3], entry) or -1
  refusal[6] = now
  refusal[7] = waiters(tonumber(ARGV[9]))
  if refusal[5] == 0 then
    -- The first in the queue tells the holder that it waits, as in lock_ask.lua: the writer, or one of the readers.
    local client, high, low = string.match(by, '^(.*):%x+%-%x+%-%x+%-([c-f]%x%x%x)%-(%x+)$')
    if client then
      local mailbox = string.format('leasehold_mailbox:%s:%s%s', client, high, low)
      redis.pcall('PUBLISH', mailbox, string.format('wanted %s', by))
    end
  end
end
return refusal
