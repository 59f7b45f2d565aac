-- The job queue inside Redis, as one script, so that every change of state happens whole or not at all.
--
-- A job that is not done is an entry of the stream JOBS; PLACES says which, by the key of the job. The consumer group
-- knows which worker has an entry, for how long, and how many times it was delivered. A worker names a delivery by its
-- receipt: entry, number of the delivery, worker.

local JOBS, PLACES, REASONS, DEAD, FINISHED, CURSOR = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local FIRST_MARK = 7 -- from here on, the marks of finished jobs: one for each job that the call is about
local GROUP, RESTING = 'workers', '(given back)'
local IS_DEAD = '^dead:(.*)$' -- a place among the dead letters; any other place is an entry of JOBS

local function field(entry, name)
  for position = 1, #entry[2], 2 do
    if entry[2][position] == name then return entry[2][position + 1] end
  end
end

local function entry_of(receipt)
  return string.match(receipt, '^(%S+) (%d+) (.*)$')
end

local function is_held(receipt)
  local id, tries, worker = entry_of(receipt)
  local pending = redis.call('XPENDING', JOBS, GROUP, id, id, 1)[1]
  return pending and pending[2] == worker and pending[4] == tonumber(tries)
end

local function remove(ids)
  redis.call('XACK', JOBS, GROUP, unpack(ids))
  redis.call('XDEL', JOBS, unpack(ids))
end

local function bury(entry, tries, reason)
  local key = field(entry, 'key')
  local letter = redis.call('XADD', DEAD, '*', 'key', key, 'body', field(entry, 'body'), 'tries', tries, 'reason', reason)
  redis.call('HSET', PLACES, key, 'dead:' .. letter)
  redis.call('HDEL', REASONS, key)
  remove({entry[1]})
end

-- how many wait: those nobody was given yet, and those that were given back
local function counts()
  local summary = redis.call('XPENDING', JOBS, GROUP)
  local resting = 0
  for _, consumer in ipairs(summary[4] or {}) do
    if consumer[1] == RESTING then resting = tonumber(consumer[2]) end
  end
  return redis.call('XLEN', JOBS) - summary[1] + resting, summary[1] - resting
end

local commands = {}

-- most waiting, then key and body of each job
function commands.put(most)
  local room = tonumber(most) - counts()
  local count = #KEYS - FIRST_MARK + 1
  for number = 1, count do
    local key, body = ARGV[1 + 2 * number], ARGV[2 + 2 * number]
    if redis.call('EXISTS', KEYS[FIRST_MARK - 1 + number]) == 0 and redis.call('HEXISTS', PLACES, key) == 0 then
      if room < 1 then return number - 1 end
      room = room - 1
      redis.call('HSET', PLACES, key, redis.call('XADD', JOBS, '*', 'key', key, 'body', body))
    end
  end
  return count
end

function commands.take(worker, most, visibility_ms, max_tries, silence)
  most = tonumber(most)
  local taken = {}
  -- looks at ten times `most` deliveries at most, and goes on there the next time
  local claimed = redis.call('XAUTOCLAIM', JOBS, GROUP, worker, visibility_ms, redis.call('GET', CURSOR) or '0-0', 'COUNT', most)
  redis.call('SET', CURSOR, claimed[1])
  for _, entry in ipairs(claimed[2]) do
    local tries = redis.call('XPENDING', JOBS, GROUP, entry[1], entry[1], 1)[1][4]
    if tries > tonumber(max_tries) then
      local before = redis.call('HGET', REASONS, field(entry, 'key'))
      bury(entry, tries - 1, before and silence .. '; before that: ' .. before or silence)
    else
      taken[#taken + 1] = {entry[1], tries, field(entry, 'key'), field(entry, 'body')}
    end
  end
  if #taken < most then
    local read = redis.call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', most - #taken, 'STREAMS', JOBS, '>')
    for _, entry in ipairs(read and read[1][2] or {}) do
      taken[#taken + 1] = {entry[1], 1, field(entry, 'key'), field(entry, 'body')}
    end
  end
  return taken
end

function commands.hold(...)
  local answers = {}
  for position, receipt in ipairs({...}) do
    local is_mine = is_held(receipt)
    if is_mine then
      local id, _, worker = entry_of(receipt)
      redis.call('XCLAIM', JOBS, GROUP, worker, 0, id, 'JUSTID')
    end
    answers[position] = is_mine and 1 or 0
  end
  return answers
end

-- how long a mark is kept, then key and receipt of each job
function commands.finish(kept_ms)
  local answers, keys, entries, letters = {}, {}, {}, {}
  for number = 1, #KEYS - FIRST_MARK + 1 do
    local key, receipt = ARGV[1 + 2 * number], ARGV[2 + 2 * number]
    local finisher = redis.call('SET', KEYS[FIRST_MARK - 1 + number], receipt, 'PX', kept_ms, 'NX', 'GET')
    if not finisher then keys[#keys + 1] = key end
    answers[number] = (not finisher or finisher == receipt) and 1 or 0
  end
  if #keys == 0 then return answers end
  redis.call('INCRBY', FINISHED, #keys)
  for _, place in ipairs(redis.call('HMGET', PLACES, unpack(keys))) do
    local letter = place and string.match(place, IS_DEAD)
    if letter then letters[#letters + 1] = letter elseif place then entries[#entries + 1] = place end
  end
  redis.call('HDEL', PLACES, unpack(keys))
  redis.call('HDEL', REASONS, unpack(keys))
  if #letters > 0 then redis.call('XDEL', DEAD, unpack(letters)) end
  if #entries > 0 then remove(entries) end
  return answers
end

function commands.give_back(receipt, key, reason, idle_ms, max_tries)
  if not is_held(receipt) then return end
  local id, tries = entry_of(receipt)
  if tonumber(tries) >= tonumber(max_tries) then
    bury(redis.call('XRANGE', JOBS, id, id)[1], tries, reason)
  else
    redis.call('HSET', REASONS, key, reason)
    redis.call('XCLAIM', JOBS, GROUP, RESTING, 0, id, 'IDLE', idle_ms, 'JUSTID')
  end
end

function commands.reject(receipt, reason)
  if not is_held(receipt) then return end
  local id, tries = entry_of(receipt)
  bury(redis.call('XRANGE', JOBS, id, id)[1], tries, reason)
end

function commands.revive(...)
  local count = 0
  for _, key in ipairs({...}) do
    local place = redis.call('HGET', PLACES, key)
    local letter = place and string.match(place, IS_DEAD)
    if letter then
      local entry = redis.call('XRANGE', DEAD, letter, letter)[1]
      redis.call('XDEL', DEAD, letter)
      redis.call('HSET', PLACES, key, redis.call('XADD', JOBS, '*', 'key', key, 'body', field(entry, 'body')))
      count = count + 1
    end
  end
  return count
end

function commands.dead(after, most)
  local letters = {}
  for position, entry in ipairs(redis.call('XRANGE', DEAD, after, '+', 'COUNT', most)) do
    letters[position] = {entry[1], field(entry, 'key'), field(entry, 'body'), field(entry, 'tries'), field(entry, 'reason')}
  end
  return letters
end

function commands.depth()
  local waiting, in_flight = counts()
  return {waiting, in_flight, tonumber(redis.call('GET', FINISHED) or 0), redis.call('XLEN', DEAD)}
end

-- the names of workers that are gone would be kept for ever
function commands.forget_workers(idle_ms)
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', JOBS, GROUP)) do
    local consumer = {}
    for position = 1, #flat, 2 do consumer[flat[position]] = flat[position + 1] end
    if consumer.pending == 0 and consumer.idle > tonumber(idle_ms) then
      redis.call('XGROUP', 'DELCONSUMER', JOBS, GROUP, consumer.name)
    end
  end
end

if redis.call('EXISTS', JOBS) == 0 then redis.call('XGROUP', 'CREATE', JOBS, GROUP, '0', 'MKSTREAM') end
return commands[ARGV[1]](unpack(ARGV, 2))
