-- Gives a signal: it gets a higher number, and the data that come with it.
-- KEYS: 1 signal (hash: number, data)
-- ARGV: 1 data, 2 retention_ms, 3 publish verb, 4 channel
-- Returns {number, how many listen}.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
-- A server that has lost the number goes on above it.
local number = math.max((tonumber(redis.call('HGET', KEYS[1], 'number')) or 0) + 1, now_us)
local text = string.format('%.0f', number)
-- A full server refuses a HSET, but not behind another write of the same script. That write must leave the key there: while its
-- slot moves, a master refuses to make anew in a script what it has just deleted.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'number', text, 'data', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local heard = redis.pcall(ARGV[3], ARGV[4], text)
return {number, type(heard) == 'number' and heard or 0}
