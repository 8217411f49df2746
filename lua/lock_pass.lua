-- What a release does if others wait, if it keeps the lock, or if its lease does not hold it. The library puts this text
-- behind lock_release.lua, which frees a lock that nobody waits for, and queue.lua.
-- KEYS: 1 name, 3 queue, as for lock_release.lua
-- ARGV: 2 channel of the lock, 3 publish verb, 4 keep_ms, 6 entry, 7 granted, as for lock_release.lua
-- Returns what lock_release.lua says.
local pump, tell_head, leave = queue()
local entry = KEYS[3] and ARGV[6] and ARGV[6] ~= '' and ARGV[6]
local function reply(freed)
  return passed > 0 and {freed, passed} or freed
end
if held ~= 1 then
  if entry then
    leave(entry)
  end
  return held == 0 and reply(0) or held
end

if keeps then
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    if KEYS[3] then
      tell_head()
    end
  end
  return reply(1)
end

if left > 1 then
  -- Somebody made the hash by hand, and it has other fields.
  return reply(1)
end
-- Redisson's waiters listen to the channel and are in no queue. Every second turn is open to them.
local count = ARGV[3] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB'
local is_open = ARGV[7] == '1' and redis.call('PUBSUB', count, ARGV[2])[2] > 0
if not is_open and pump() then
  return reply(1)
end
local receivers = redis.pcall(ARGV[3] or 'PUBLISH', ARGV[2], '0')
if is_open then
  tell_head()
end
return reply(type(receivers) == 'number' and 1 + receivers or 1)
