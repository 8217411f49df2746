-- Reads what those who hold this lock wait for, as they have noted it. Changes nothing.
-- KEYS: 1 name, 2 notes (hash: id of a note -> see wait_note)
-- ARGV: none
-- Returns a flat list: the id of each note, and the note. Left out are those that are over, those of leases that do not hold the
-- lock, and what is no note.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local notes = redis.call('HRANDFIELD', KEYS[2], 1000, 'WITHVALUES')
local found = {}
for i = 1, #notes, 2 do
  local ends_ms, lease = string.match(notes[i + 1], '^(%d+) %d+ (%S+) ')
  if ends_ms and tonumber(ends_ms) > now_ms
    and (redis.call('HEXISTS', KEYS[1], lease) == 1 or redis.call('HEXISTS', KEYS[1], table.concat({lease, ':write'})) == 1) then
    found[#found + 1] = notes[i]
    found[#found + 1] = notes[i + 1]
  end
end
return found
