-- Lends items to those who wait, once some were added. The library puts this text, with queue.lua and items.lua between, behind the
-- scripts that add items.
-- KEYS: none
-- ARGV: none
-- Returns the script's answer.

-- While a cluster moves the slot, it refuses to look for what is gone. Those who wait ask again.
pcall(function()
  local first, moved = serve()
  if first and moved then
    tell_first()
  end
end)
return answer
