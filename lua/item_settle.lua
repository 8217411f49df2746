-- Ends a delivery, and lends what can be lent to those who wait. One that waits in the queue leaves it.
-- KEYS: 1 name, 2 lent, 3 queue, 4 contents, 5 dead
-- ARGV: 1 id, 2 outcome (ack: it is done; retry: it is delivered again; undo: nobody has seen it, so that was no delivery; reject: it is dead), 3 after_ms (for a retry: not before), 4 entry (empty: it has not queued), 5 at_us (when the item was lent that this is about; empty: whichever is)
-- Returns {1} or {0} when it was lent no more. A second number says how many in the queue were gone and passed over, if any were.
local id, outcome = ARGV[1], ARGV[2]
local place = ARGV[4] ~= '' and redis.call('ZRANK', KEYS[3], ARGV[4])
if place then
  redis.call('ZREM', KEYS[3], ARGV[4])
end
local number, payload, _, at = content(id)
local had = 0
if number then
  if ARGV[5] == '' or ARGV[5] == at then
    had = 1
  else
    -- A request that ran late has lent it: its worker had another item under this id, which has ended.
    outcome = 'undo'
  end
  may_move()
  if outcome == 'ack' then
    remove(id)
  elseif outcome == 'reject' then
    redis.call('RPUSH', KEYS[5], payload)
    remove(id)
  elseif outcome == 'undo' then
    fall_due(id, number - 1, payload, 0)
  else
    fall_due(id, number, payload, now_ms + tonumber(ARGV[3]))
  end
end
-- While a cluster moves the slot, it refuses to look for what is gone. The item is where it should be whatever becomes of the
-- rest, and those who wait ask again.
pcall(function()
  local first, moved = serve()
  if first and (moved or place == 0 or number) then
    tell_first()
  end
end)
-- The list ends before a nil.
return {had, passed > 0 and passed or nil}
