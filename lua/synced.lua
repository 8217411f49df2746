-- Writes something that a server's replicas receive, which then say how far they are.
-- KEYS: 1 a key that is gone after a millisecond, or the lock itself
-- ARGV: 1 '' or 'own': the key is the lock, which only gets the end that it has
-- Returns 1, or 0 if the lock is gone, or has no end.
if ARGV[1] == 'own' then
  local left = redis.call('PTTL', KEYS[1])
  return left > 0 and redis.call('PEXPIRE', KEYS[1], left) or 0
end
-- A server whose memory is full refuses SET, but not to a script that has called a command that writes before.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '1', 'PX', '1')
return 1
