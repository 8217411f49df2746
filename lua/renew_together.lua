-- Renews several leases of one kind, each as if it were renewed by itself: what fails for one changes nothing for the others.
-- The library puts the script of one renewal before this text, as the function `renew` of its keys and arguments.
-- KEYS: those of each lease, one lease after the other
-- ARGV: 1 how many keys each lease has, 2 how many arguments, then those of each lease
-- Returns {how many are held, and for each lease 1, 0 when it does not hold the lock, or -1 when its renewal failed}.
local per_key, per_arg = tonumber(ARGV[1]), tonumber(ARGV[2])
local keys, args, answers, held = {}, {}, {0}, 0
for number = 0, #KEYS / per_key - 1 do
  for i = 1, per_key do
    keys[i] = KEYS[number * per_key + i]
  end
  for i = 1, per_arg do
    args[i] = ARGV[2 + number * per_arg + i]
  end
  local ran, answer = pcall(renew, keys, args)
  if not ran or type(answer) ~= 'number' then
    answer = -1
  elseif answer == 1 then
    held = held + 1
  end
  answers[number + 2] = answer
end
answers[1] = held
return answers
