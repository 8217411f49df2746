-- Lists the channels of locks that somebody listens to. Changes nothing.
-- KEYS: none
-- ARGV: 1 verb (CHANNELS, or SHARDCHANNELS if the channels are sharded ones), 2.. patterns of the channels
-- Returns the list of the channels.
local channels = {}
for place = 2, #ARGV do
  for _, channel in ipairs(redis.call('PUBSUB', ARGV[1], ARGV[place])) do
    channels[#channels + 1] = channel
  end
end
return channels
