-- Reads how many counts of a latch are left. Changes nothing.
-- KEYS: 1 name
-- ARGV: none
-- Returns {0, counts left, pttl}.
return state(0)
