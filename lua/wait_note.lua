-- Notes that a wait goes on whose owner holds this lock. The note ends by itself, and soon, unless it is made again.
-- KEYS: 1 name, 2 notes (hash: id of a note -> the millisecond of its end, the number of the beat, the lease, what it says)
-- ARGV: 1 id (of the lease), 2 id of the note, 3 beat (how often the note was made, this time included), 4 ttl_ms, 5 what it says
-- Returns 1, or 0 when the lease does not hold the lock.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HEXISTS', KEYS[1], table.concat({ARGV[1], ':write'})) == 0 then
  redis.call('HDEL', KEYS[2], ARGV[2])
  return 0
end
local before = redis.call('HGET', KEYS[2], ARGV[2])
local beaten = before and string.match(before, '^%d+ (%d+) ')
if beaten and tonumber(beaten) > tonumber(ARGV[3]) then
  -- It comes late: the wait was seen to go on since.
  return 1
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local notes = redis.call('HRANDFIELD', KEYS[2], 1000, 'WITHVALUES')
for i = 1, #notes, 2 do
  local ends_ms = string.match(notes[i + 1], '^(%d+) %d+ ')
  if ends_ms and tonumber(ends_ms) <= now_ms then
    redis.call('HDEL', KEYS[2], notes[i])
  end
end
-- Not by `%s`, which ends at a zero byte.
local note = table.concat({string.format('%.0f', now_ms + ARGV[4]), ARGV[3], ARGV[1], ARGV[5]}, ' ')
-- Another client may have notes there that last longer.
local last_longer = redis.call('PTTL', KEYS[2]) >= tonumber(ARGV[4])
redis.call('HSET', KEYS[2], ARGV[2], note)
local expiry = last_longer or redis.pcall('PEXPIRE', KEYS[2], ARGV[4])
if type(expiry) == 'table' then
  -- Nothing is rolled back: notes that could not be given an end must not stay.
  redis.call('DEL', KEYS[2])
  return expiry
end
return 1
