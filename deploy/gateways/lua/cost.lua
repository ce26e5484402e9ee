-- luajit cost.lua ADDRESS [rounds]: the time of a call, and how many were recorded, as agent/c/examples/cost.c measures.
-- LUA_PATH has to contain this directory, and LD_LIBRARY_PATH the library's, unless the library is installed.

local ffi = require "ffi"
local tollgate = require "tollgate"

ffi.cdef([[
typedef struct { long seconds, nanoseconds; } cost_time;
int clock_gettime(int clock, cost_time *time);
]])

local DOMAINS, BLOCKS = 1000, 2000
local MONOTONIC = 1
local time = ffi.new("cost_time")

local function now_ns()
    ffi.C.clock_gettime(MONOTONIC, time)
    return tonumber(time.seconds) * 1e9 + tonumber(time.nanoseconds)
end

local agent, err = tollgate.open("aggregators=" .. (arg[1] or "127.0.0.1:7401") .. "; name=cost-lua")
if err then
    io.stderr:write(err, "\n")
    os.exit(2)
end
local rate = agent:rate("api.free")
local domains = {}
for i = 0, DOMAINS - 1 do
    domains[i] = string.format("tenant:%08x:user:%08x", i, i * 7919)
end
agent:ready(5)

local function percent(before, after)
    return 100 * (after - before) / (BLOCKS * DOMAINS)
end

local function measure()
    local before = agent:stats()
    local blocks, refused = {}, 0
    for block = 1, BLOCKS do
        local start = now_ns()
        for i = 0, DOMAINS - 1 do
            if rate:hit(domains[i]) then
                refused = refused + 1
            end
        end
        blocks[block] = now_ns() - start
        while now_ns() - start < 1e6 do end
    end
    local after = agent:stats()
    table.sort(blocks)
    print(string.format("LuaJIT: %.1f ns a call (a tenth: %.1f), %.2f %% recorded, %.2f %% acknowledged, %d refused",
        blocks[BLOCKS / 2] / DOMAINS, blocks[BLOCKS / 10] / DOMAINS,
        percent(before.hits_accepted, after.hits_accepted),
        percent(before.hits_acknowledged, after.hits_acknowledged), refused))
    io.stdout:flush()
end

if arg[2] then
    for _ in io.lines() do
        measure()
    end
else
    measure()
end
agent:close()
