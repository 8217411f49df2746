-- Writes down what a leader says of itself, and tells those who observe. The release of its lease deletes it.
-- KEYS: 1 name, 2 leader
-- ARGV: 1 id, 2 term, 3 number (of what was said in this term), 4 publish verb, 5 channel of the leader, 6 retention_ms, 7 value
-- Returns 1, or 0 when the lease does not hold the lock, or a later leader has spoken.
local said = redis.call('GET', KEYS[2]) or ''
local holder, term, number = string.match(said, '^(%S+) (%d+) (%d+) ')
-- Several leaders, one after the other, may have had the lease.
local behind = holder == ARGV[1] and tonumber(term) - tonumber(ARGV[2])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 or (behind and behind > 0) then
  return 0
elseif behind == 0 and tonumber(number) > tonumber(ARGV[3]) then
  -- It comes late: the leader has said something else since.
  return 1
end
redis.call('SET', KEYS[2], table.concat({ARGV[1], ARGV[2], ARGV[3], ARGV[7]}, ' '), 'PX', ARGV[6])
-- Those who observe look again by themselves, too.
redis.pcall(ARGV[4], ARGV[5], ARGV[2])
return 1
