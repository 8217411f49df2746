-- Tries every command that the other scripts use, so that a missing right shows before a script needs it.
-- A probe reads, is refused for its arguments, or changes what does not exist: it leaves nothing behind.
-- KEYS: none
-- ARGV: 1 a key and channel that nobody uses, 2 publish verb
-- Returns the names of the commands that this user may not run.
local name = ARGV[1]
local probes = {
  {'PTTL', name}, {'HEXISTS', name, 'f'}, {'HRANDFIELD', name}, {'HGET', name, 'f'}, {'HLEN', name},
  {'ZADD', name, 'NX', 'odd', 'm'}, {'ZRANGE', name, '0', '0'}, {'ZRANK', name, 'm'}, {'ZREM', name, 'm'}, {'ZPOPMIN', name},
  {'HSET', name, 'f', 'v', 'odd'}, {'HDEL', name, 'f'}, {'PEXPIRE', name, 'never'}, {'EXISTS', name}, {'DEL', name},
  {'GET', name}, {'SET', name, 'v', 'PX', 'never'}, {'TIME'}, {'PUBSUB', 'NUMSUB', name}, {'PUBLISH', name, '0'},
}
if ARGV[2] ~= 'PUBLISH' then
  probes[#probes + 1] = {ARGV[2], name, '0'}
end
local denied = {}
for _, probe in ipairs(probes) do
  local reply = redis.pcall(unpack(probe))
  local err = type(reply) == 'table' and reply.err
  if err and (string.find(err, 'has no permissions to run', 1, true) or string.find(err, "can't run this command", 1, true)) then
    denied[#denied + 1] = probe[1]
  end
end
return denied
