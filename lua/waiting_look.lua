-- Looks whether anybody waits for a lock. Changes nothing.
-- KEYS: 1 queue (optional)
-- ARGV: 1 channel of the lock, 2 count (NUMSUB or SHARDNUMSUB)
-- Returns how many listen on the channel, and 1 more if somebody is queued; so 0 if nobody waits.
local subscribers = redis.call('PUBSUB', ARGV[2], ARGV[1])[2]
return subscribers + (KEYS[1] and #redis.call('ZRANGE', KEYS[1], 0, 0) or 0)
