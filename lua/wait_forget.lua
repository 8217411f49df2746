-- Removes notes of waits that are over.
-- KEYS: 1 notes (hash: id of a note -> see wait_note)
-- ARGV: the ids of the notes
-- Returns how many there were.
return redis.call('HDEL', KEYS[1], unpack(ARGV))
