-- Tollgate for LuaJIT: rate and concurrency limits decided in the process, over the C ABI of the agent (agent/c).
--
--     local tollgate = require "tollgate"
--     local agent, err = tollgate.open("aggregators=127.0.0.1:7401")    -- once a process: in nginx, once a worker
--     local search = agent:rate("api.search")
--     local answer = search:hit("acme")                                 -- nil: let through
--     if answer then return ngx.exit(answer.status) end
--
-- Only open, ready and close wait. What stays true: no fault of this module or of the library refuses a request or
-- raises an error; without the library every call is let through, and `err` has the reason.

local ffi = require "ffi"

-- As in agent/c/tollgate.h; a test compares them.
ffi.cdef([[
typedef uint64_t tg_handle;
typedef struct tg_answer {
    int32_t code;
    uint32_t flags;
    uint32_t status;
    uint32_t copies;
    uint64_t retry_after_ms;
    uint64_t remaining;
    char denial[64];
    char headers[512];
    char body[768];
} tg_answer;
typedef struct tg_counts {
    uint64_t hits_accepted;
    uint64_t hits_dropped;
    uint64_t hits_acknowledged;
    uint64_t refused_accepted;
    uint64_t denials_live;
    uint64_t holds_live;
    uint64_t blind_for_ms;
    uint64_t calls_forked;
    uint64_t handles_live;
} tg_counts;
uint32_t tg_abi(void);
size_t tg_last_error(char *buffer, size_t capacity);
int32_t tg_open(const char *settings, tg_handle *agent);
int32_t tg_ready(tg_handle agent, uint32_t timeout_ms);
int32_t tg_stats(tg_handle agent, tg_counts *counts);
int32_t tg_count(tg_handle agent, const char *name, uint64_t *count);
int32_t tg_close(tg_handle agent, uint32_t timeout_ms);
int32_t tg_rate(tg_handle agent, const char *resource, tg_handle *rate);
int32_t tg_copies(tg_handle agent, const char *resource, tg_handle *copies);
int32_t tg_hit(tg_handle rate, const char *domain, size_t domain_len, tg_answer *answer);
int32_t tg_hit_n(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies, tg_answer *answer);
int32_t tg_peek(tg_handle rate, const char *domain, size_t domain_len, tg_answer *answer);
int32_t tg_record(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies);
int32_t tg_hit_estimated(tg_handle rate, const char *domain, size_t domain_len, uint32_t copies, tg_handle *estimate,
                         tg_answer *answer);
int32_t tg_settle(tg_handle estimate, uint32_t copies);
int32_t tg_reserve(tg_handle copies, const char *domain, size_t domain_len, uint32_t wanted, tg_handle *hold,
                   tg_answer *answer);
int32_t tg_release(tg_handle hold);
int32_t tg_free(tg_handle handle);
]])

local ABI = 0
local DENIED = 1

local M = {}

-- Loaded by the first open.
local C

-- Copies in use. The garbage collector gives a lost hold back, but that may take long: release each hold.
local Hold = ffi.metatype("struct { uint64_t handle; }", {
    __gc = function(hold)
        if hold.handle ~= 0 then
            C.tg_release(hold.handle)
        end
    end,
})

-- A worker runs one request at a time between two calls that yield, and no call of this module yields: one is enough.
local scratch = ffi.new("tg_answer")
local handle_out = ffi.new("tg_handle[1]")
local count_out = ffi.new("uint64_t[1]")
local text = ffi.new("char[1024]")

local function last_error()
    C.tg_last_error(text, 1024)
    return ffi.string(text)
end

local function load_library(name)
    local found, library = pcall(ffi.load, name or "libtollgate_c.so.0")
    if not found then
        return nil, library
    end
    -- A library without these is not Tollgate's, or too old.
    local asked, abi = pcall(function() return library.tg_count ~= nil and library.tg_abi() end)
    if not asked or abi ~= ABI then
        return nil, "the library's ABI is " .. tostring(abi) .. ", expected " .. ABI
    end
    return library
end

-- The answer to a refused call: status, retry_after (seconds, or nil), remaining (or nil), denial (or nil), headers (a
-- table), body.
local function told(answer)
    local headers = {}
    for name, value in ffi.string(answer.headers):gmatch("([^:\n]+): ([^\n]*)") do
        headers[name] = value
    end
    local denial = ffi.string(answer.denial)
    return {
        status = answer.status,
        -- Rounded up, as in the header field.
        retry_after = tonumber(headers["retry-after"]),
        remaining = answer.remaining ~= 0xffffffffffffffffULL and tonumber(answer.remaining) or nil,
        denial = denial ~= "" and denial or nil,
        headers = headers,
        body = ffi.string(answer.body),
    }
end

-- Calls that were let through because there was no domain to count them for.
M.undecided = 0

-- Domains are texts, or whole numbers; bytes that are not UTF-8 count as U+FFFD. nil, as of a missing header, is no
-- domain: it uses up no limit. Neither is another number, of which some digits are lost.
local function named(domain)
    if type(domain) == "string" then
        return domain
    elseif type(domain) == "number" and domain % 1 == 0 and math.abs(domain) < 2^53 then
        -- tostring has 14 digits, and would give one name to a hundred tenants.
        return string.format("%.0f", domain)
    end
    M.undecided = M.undecided + 1
    return nil
end

-- Calls that were let through because their number of copies makes no sense.
M.invalid = 0

-- Copies are a whole number from 0 to 2^32 - 1; C would cut off a fraction, and take another one modulo 2^32: -1 for
-- four thousand million.
-- Returns nil and an error for it.
local function counted(copies)
    local number = tonumber(copies)
    if number and 0 <= number and number < 4294967296 and number % 1 == 0 then
        return number
    end
    M.invalid = M.invalid + 1
    return nil, tostring(copies) .. " copies: expected a whole number from 0 to 4294967295"
end

-- The error of a call by its code. The library has not decided on such a call: it is let through, and counted in
-- calls_failed (Agent:stats).
local function failed(code)
    return code < 0 and last_error() or nil
end

local Rate = {}
Rate.__index = Rate

-- Counts a call of a domain, of one copy or of this many. Returns nil if it is let through, else the answer to a
-- refusal. A call of 0 copies is let through and counts nothing. So is one of an impossible number of copies, or
-- that the library cannot carry out; the second result is the error.
function Rate:hit(domain, copies)
    domain = named(domain)
    if not self.library or not domain then
        return nil
    end
    local err
    if copies then
        copies, err = counted(copies)
        if err or copies == 0 then
            return nil, err
        end
    end
    local code
    if copies then
        code = self.library.tg_hit_n(self.handle, domain, #domain, copies, scratch)
    else
        code = self.library.tg_hit(self.handle, domain, #domain, scratch)
    end
    if code == DENIED then
        return told(scratch)
    end
    return nil, failed(code)
end

-- The result that hit would have; counts nothing.
function Rate:peek(domain)
    domain = named(domain)
    if not self.library or not domain then
        return nil
    end
    local code = self.library.tg_peek(self.handle, domain, #domain, scratch)
    if code == DENIED then
        return told(scratch)
    end
    return nil, failed(code)
end

-- Counts copies that were used already. Returns true, or nil and an error, as for an impossible number.
function Rate:record(domain, copies)
    local number, err = counted(copies)
    if err then
        return nil, err
    end
    domain = named(domain)
    if self.library and domain then
        err = failed(self.library.tg_record(self.handle, domain, #domain, number))
    end
    return not err or nil, err
end

-- A call whose cost is known afterwards. Returns nil, or the answer to a refusal; and an estimate to settle; and an
-- error, as for an impossible number of copies, after which the call is let through.
function Rate:hit_estimated(domain, copies)
    local number, err = counted(copies)
    if err then
        return nil, 0ULL, err
    end
    domain = named(domain)
    if not self.library or not domain then
        return nil, 0ULL
    end
    local code = self.library.tg_hit_estimated(self.handle, domain, #domain, number, handle_out, scratch)
    if code == DENIED then
        return told(scratch), 0ULL
    end
    -- A call that could not be decided has no estimate; settling it does nothing.
    return nil, code == 0 and handle_out[0] or 0ULL, failed(code)
end

-- Settles the estimate by the actual cost. Once only. Without an estimate it does nothing. Returns true, or nil and an
-- error. After that for an impossible number of copies the estimate can still be settled.
function Rate:settle(estimate, copies)
    local number, err = counted(copies)
    if err then
        return nil, err
    end
    if self.library and estimate then
        err = failed(self.library.tg_settle(estimate, number))
    end
    return not err or nil, err
end

-- In nginx: ends a request that was refused.
local function respond(answer)
    ngx.status = answer.status
    for name, value in pairs(answer.headers) do
        ngx.header[name] = value
    end
    ngx.print(answer.body)
    return ngx.exit(ngx.HTTP_OK)
end

local log_second = 0

-- In nginx: logs why a request was let through undecided, at most once a second.
local function log(err)
    if ngx.time() ~= log_second then
        log_second = ngx.time()
        ngx.log(ngx.ERR, "tollgate: ", err)
    end
end

-- In nginx: counts the request, and ends it where it is refused; logs the error of hit. Use it in access_by_lua, in one
-- place a request. That of a `server` block runs again after an internal redirect (error_page, try_files, ngx.exec):
-- there, ask ngx.req.is_internal() first.
function Rate:limit(domain, copies)
    local answer, err = self:hit(domain, copies)
    if answer then
        return respond(answer)
    end
    if err then
        log(err)
    end
end

local Copies = {}
Copies.__index = Copies

-- Takes copies. Returns nil, or the answer to a refusal; and a hold to release, or nil. Keep the hold as long as the
-- copies are in use: the garbage collector releases one that is lost. A call of an impossible number of copies, or that
-- the library cannot carry out, is let through without a hold; the third result is the error. Copies beyond holds_max
-- are let through, and count nowhere; holds_unrecorded (Agent:stats) counts such holds.
function Copies:reserve(domain, copies)
    local number, err = counted(copies or 1)
    if err then
        return nil, nil, err
    end
    domain = named(domain)
    if not self.library or not domain then
        return nil
    end
    local code = self.library.tg_reserve(self.handle, domain, #domain, number, handle_out, scratch)
    if code == DENIED then
        return told(scratch)
    end
    return nil, code == 0 and Hold(handle_out[0]) or nil, failed(code)
end

-- Gives the copies back. Without a hold, as after a refusal, and a second time it does nothing.
function Copies:release(hold)
    if ffi.istype(Hold, hold) and hold.handle ~= 0 then
        C.tg_release(hold.handle)
        hold.handle = 0
    end
end

-- The holds of each request under way, by the number of its connection and its own number there. Unlike ngx.ctx, both
-- outlast internal redirects.
local holds_of = {}

local function this_request()
    return ngx.var.connection .. ":" .. ngx.var.connection_requests
end

-- In nginx: takes copies until the request ends, and ends it where they are refused; logs the error of reserve. Use it
-- in access_by_lua, and M.ended in log_by_lua. A request takes copies of one resource once, also if it is redirected.
function Copies:limit(domain, copies)
    local request = this_request()
    local holds = holds_of[request] or {}
    if holds[self] then
        return
    end
    local answer, hold, err = self:reserve(domain, copies)
    if answer then
        return respond(answer)
    end
    if hold then
        holds[self] = hold
        holds_of[request] = holds
    end
    if err then
        log(err)
    end
end

-- In nginx: gives back what Copies:limit took for the request. Use it in log_by_lua of the `server` block, which runs
-- however and wherever a request ends; a location with a log_by_lua of its own has to call it there.
function M.ended()
    local request = this_request()
    for copies, hold in pairs(holds_of[request] or {}) do
        copies:release(hold)
    end
    holds_of[request] = nil
end

local Agent = {}
Agent.__index = Agent

local function opened(agent, open, kind)
    local made = setmetatable({}, kind.class)
    if not agent.library then
        return made
    end
    if open(agent.handle, kind.resource, handle_out) ~= 0 then
        return made, last_error()
    end
    made.library, made.handle = agent.library, handle_out[0]
    return made
end

-- A resource that is limited by rate. Take one at the start and keep it. There always is one: if the library refuses
-- the name, it lets everything through, and has an error beside it.
function Agent:rate(resource)
    return opened(self, C and C.tg_rate, { class = Rate, resource = resource })
end

-- A resource that is limited by copies; the same holds for it.
function Agent:copies(resource)
    return opened(self, C and C.tg_copies, { class = Copies, resource = resource })
end

-- Waits until the agent has received limits and denials; returns whether it has. Take the resources before: an agent
-- learns a resource's limits once its handle was taken. Blocks the worker: use it only in init_worker_by_lua.
function Agent:ready(seconds)
    return self.library ~= nil and self.library.tg_ready(self.handle, (seconds or 0.5) * 1000) == 0
end

-- The agent's counters, or nil; and `undecided` and `invalid`, for all agents of the worker. Where no limit is applied,
-- connections_refused, welcomes and those beside them tell why: see tg_count in tollgate.h.
function Agent:stats()
    local counts = ffi.new("tg_counts")
    if not self.library or self.library.tg_stats(self.handle, counts) ~= 0 then
        return nil
    end
    local names = { "hits_accepted", "hits_dropped", "hits_acknowledged", "refused_accepted", "denials_live",
        "holds_live", "blind_for_ms", "calls_forked", "handles_live" }
    local stats = { undecided = M.undecided, invalid = M.invalid }
    for _, name in ipairs(names) do
        stats[name] = tonumber(counts[name])
    end
    names = { "calls_failed", "connections_ended", "connections_refused", "feeds_opened", "holds_unrecorded",
        "links_lost", "names_not_resolved", "welcomes" }
    for _, name in ipairs(names) do
        self.library.tg_count(self.handle, name, count_out)
        stats[name] = tonumber(count_out[0])
    end
    return stats
end

-- Sends the recorded calls, and ends the agent; returns whether all were sent. Blocks. Call it before the process ends,
-- in nginx in exit_worker_by_lua: calls that were not yet sent are lost with the process.
function Agent:close(seconds)
    local library = self.library
    self.library = nil
    return library == nil or library.tg_close(self.handle, (seconds or 2) * 1000) == 0
end

-- Opens an agent, by settings as in tollgate.h (nil: the environment's), with the library of this name or path. There
-- always is an agent: one that could not be opened lets everything through, and has an error beside it.
function M.open(settings, library)
    local agent = setmetatable({}, Agent)
    local err
    if not C then
        C, err = load_library(library)
    end
    if not C then
        return agent, err
    end
    if C.tg_open(settings, handle_out) ~= 0 then
        return agent, last_error()
    end
    agent.handle, agent.library = handle_out[0], C
    return agent
end

return M
