-- Frees the lock whoever holds it, or only if the given lease does, and tells those who wait.
-- KEYS: 1 name, 2 channel
-- ARGV: 1 publish verb, 2 id (optional: only if this lease holds it)
-- Returns 1, or 0 when there was nothing to free.
if ARGV[2] then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return 0
  end
elseif redis.call('HLEN', KEYS[1]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[1], KEYS[2], '0')
return 1
