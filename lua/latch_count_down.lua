-- Makes one of the counts that a latch waits for. The last one opens it.
-- KEYS: 1 name
-- ARGV: 1 publish verb, 2 channel
-- Returns {1, counts left, pttl}; the first is 0 if the latch was open already.
local done = left > 0 and 1 or 0
if left > 1 then
  left = left - 1
  local number = string.format('%.0f', left)
  local written = redis.pcall('SET', KEYS[1], number, 'KEEPTTL')
  if written.err and string.find(written.err, 'OOM', 1, true) then
    -- A full server refuses a SET, but not behind another write of the same script. It was allowed, or the error were another.
    -- That write must leave the key there: while its slot moves, a master refuses to make anew in a script what it has just
    -- deleted. A latch without an end gets one, which the SET removes.
    local pttl = redis.call('PTTL', KEYS[1])
    redis.call('PEXPIRE', KEYS[1], pttl < 0 and 31536000000 or math.max(pttl, 1))
    if pttl < 0 then
      redis.call('SET', KEYS[1], number)
    else
      redis.call('SET', KEYS[1], number, 'KEEPTTL')
    end
  elseif written.err then
    return written
  end
else
  redis.call('DEL', KEYS[1])
  if done == 1 then
    redis.pcall(ARGV[1], ARGV[2], '0')
  end
  -- While its slot moves, a master refuses to look for what is gone.
  return {done, 0, -2}
end
return state(done)
