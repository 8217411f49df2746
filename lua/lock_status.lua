-- Reads who holds the lock. Changes nothing.
-- KEYS: 1 name, 2 token
-- ARGV: 1 channel of the lock
-- Returns {pttl, holder, hold count, last token taken, subscribers}; pttl -2 and nils where there is nothing.
local pttl = redis.call('PTTL', KEYS[1])
local holder = redis.call('HRANDFIELD', KEYS[1])
local count = holder and redis.call('HGET', KEYS[1], holder)
local subscribers = redis.call('PUBSUB', 'NUMSUB', ARGV[1])
return {pttl, holder, count, redis.call('GET', KEYS[2]), subscribers[2]}
