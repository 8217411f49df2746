-- Takes the lock if it is free. Sent again for the same lease it confirms the lease and takes nothing new.
-- KEYS: 1 name (hash: lease id -> hold count), 2 token (fencing counter)
-- ARGV: 1 id, 2 count, 3 ttl_ms, 4 block (how many tokens), 5 retention_ms of the counter (0: for ever), 6 grain_us (the time is rounded down to it), 7 channel of the lock
-- Returns {1, end of the token block} when it is held, {0, pttl, holder, subscribers of the channel} when another holds it.
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    local subscribers = redis.call('PUBSUB', 'NUMSUB', ARGV[7])
    return {0, redis.call('PTTL', KEYS[1]), redis.call('HRANDFIELD', KEYS[1]), subscribers[2]}
  end
  local last = redis.call('GET', KEYS[2])
  if last then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
    return {1, tonumber(last)}
  end
end
return {1, take(ARGV[1], ARGV[2], ARGV[3], ARGV[4])}
