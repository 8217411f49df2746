-- What a client costs that stands still: the first in the queue, after a grant by message to the same client, which let it end.
-- The library puts this text behind queue.lua, into the scripts that find that out.
-- KEYS: 3 queue (sorted set: entry -> order of arrival)
-- ARGV: none
-- Returns nothing.

-- Takes all places of the first one's client out of the queue, if the last grant went to that client by message, and nobody has given
-- it back: each of them would cost as much again. The client is told, so that it asks anew if it lives. `mine` asks, so its client
-- lives. Where several are granted something at a time, `ended` returns what has ended: members that begin with ids. Returns whether
-- it was so.
local function pass_over_silent(waiter, mine, ended)
  local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) % 1 == 0 then
    return false
  end
  local silent, id = waiter(first[1])
  if not silent or mine and waiter(mine) == silent then
    return false
  end
  if ended then
    local client, is_known = string.match(id, '^[^:]*:'), false
    for _, member in ipairs(ended()) do
      is_known = is_known or string.sub(member, 1, #client) == client
    end
    if not is_known then
      return false
    end
  end
  for _, entry in ipairs(redis.call('ZRANGE', KEYS[3], 0, most - 1)) do
    local mailbox, other = waiter(entry)
    if mailbox == silent then
      redis.call('ZREM', KEYS[3], entry)
      redis.pcall('PUBLISH', mailbox, string.format('free %s', other))
    end
  end
  return true
end

