-- Takes the lock if it is free and nobody is ahead in the queue. Sent again for the same lease it confirms the lease and
-- takes nothing new. Otherwise it queues, if it has an entry; it does so once, however often it is sent. A free lock is taken
-- before anything is made ready that only others need. The library puts take.lua before this text, and
-- queue.lua and lock_ask.lua behind it.
-- KEYS: 1 name (hash: lease id -> hold count), 2 token (fencing counter), 3 queue (optional)
-- ARGV: 1 id, 2 ttl_ms, 3 block (optional; how many tokens, one if it is not said), 4 entry (optional; without it or empty: does not queue), 5 retention_ms of the counter (optional; 0: for ever, a day if it is not said), 6 grain_us (optional; the time is rounded down to it), 7 show (optional; how many of those who wait are listed: if it is not said, eight for who does not queue, else none), 8 count (optional; SHARDNUMSUB, if the channel is a sharded one)
-- Returns the end of the token block when it is held, {0, pttl, holder, subscribers of the channel} when another holds it, or is the first to get it. With a queue a refusal goes on: place (-1: not queued, 0: the first), server_us, list of those who wait.
if redis.call('EXISTS', KEYS[1], KEYS[3] or KEYS[1]) == 0 then
  return (take(ARGV[1], ARGV[2], ARGV[3] or 1, ARGV[6]))
end
