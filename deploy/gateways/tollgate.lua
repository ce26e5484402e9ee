-- Asks a gateway (tollgate gateway) whether a request may pass, for HAProxy: see haproxy.cfg.
--
-- Sets txn.tollgate_status to what was answered: "200", "429", "503"; to "none" where nobody answered in time, so that
-- the request goes on. Of a refusal, also tollgate_retry_after, _ratelimit, _ratelimit_policy, _code and _body.
--
-- A socket of its own and not core.httpclient, which in HAProxy 2.6 tries a gateway that is gone for three seconds.

local GATEWAY = { "127.0.0.1", 7404 } -- or { "unix@/run/tollgate/gateway.sock" }
local SECONDS = 0.05 -- for each step of asking

-- The client's headers that a question asks about (domain=header:NAME, cost=header:NAME), as lines. Bytes that the
-- gateway would refuse are left out, so that nobody passes uncounted by them.
local function asked_about(question, headers)
  local lines = ""
  for name in question:gmatch("header:([%w_-]+)") do
    local values = headers[name:lower()]
    if values then
      lines = lines .. name .. ": " .. values[0]:gsub("%c", "") .. "\r\n"
    end
  end
  return lines
end

-- The status, the header fields and the body of an answer; nil where there is none.
local function ask(question, address, headers)
  local socket = core.tcp()
  socket:settimeout(SECONDS)
  if not socket:connect(table.unpack(GATEWAY)) then
    return nil
  end
  socket:send(
    "GET " .. question .. " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Forwarded-For: " .. address .. "\r\n" .. headers .. "\r\n"
  )
  local status = socket:receive("*l")
  status = status and status:match("^HTTP/1%.%d (%d%d%d)")
  local fields = {}
  while status do
    local line = socket:receive("*l")
    if not line then
      status = nil
    elseif line == "" or line == "\r" then
      break
    else
      local name, value = line:match("^([^:]+):%s*(.-)%s*$")
      if name then
        fields[name:lower()] = value
      end
    end
  end
  local body = ""
  local length = tonumber(fields["content-length"] or "0")
  if status and 0 < length then
    body = socket:receive(length) or ""
  end
  socket:close()
  return status, fields, body
end

core.register_action("tollgate", { "http-req" }, function(txn)
  local question = txn:get_var("txn.tollgate_question")
  local headers = asked_about(question, txn.http:req_get_headers())
  local _, status, fields, body = pcall(ask, question, txn.f:src(), headers)
  if type(fields) ~= "table" then
    status, fields, body = nil, {}, ""
  end
  txn:set_var("txn.tollgate_status", status or "none")
  txn:set_var("txn.tollgate_retry_after", fields["retry-after"] or "")
  txn:set_var("txn.tollgate_ratelimit", fields["ratelimit"] or "")
  txn:set_var("txn.tollgate_ratelimit_policy", fields["ratelimit-policy"] or "")
  txn:set_var("txn.tollgate_code", fields["x-tollgate-code"] or "")
  txn:set_var("txn.tollgate_body", (body or ""):match("^(.-)%s*$"))
end, 0)
