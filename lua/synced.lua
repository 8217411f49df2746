-- Writes something that a server's replicas receive, which then say how far they are.
-- KEYS: 1 a key that is gone after a millisecond
-- ARGV: none
-- Returns 1.
-- A server whose memory is full refuses SET, but not to a script that has called a command that writes before.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '1', 'PX', '1')
return 1
