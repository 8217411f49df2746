-- Reads who leads, and what the leader says of itself. Changes nothing.
-- KEYS: 1 name, 2 leader
-- ARGV: none
-- Returns {pttl, holder of the lock, what was said}: holder, term, number and value with a space between them. It may be of an earlier leader. pttl -2 and nils where there is nothing.
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key is a lock of another kind')
end
return {redis.call('PTTL', KEYS[1]), redis.call('HRANDFIELD', KEYS[1]), redis.call('GET', KEYS[2])}
