-- Asks a gateway (tollgate gateway) whether a request may pass, for HAProxy: see haproxy.cfg.
--
-- Sets txn.tollgate_status to the status of the answer: "200", "429", "503"; to "none" if no answer came in time, so that
-- the request goes on. For a refusal, also sets tollgate_retry_after, _ratelimit, _ratelimit_policy, _code and _body.
--
-- Uses a socket of its own, because core.httpclient of HAProxy 2.6 tries to reach a missing gateway for three seconds.

local GATEWAY = { "127.0.0.1", 7404 } -- or { "unix@/run/tollgate/gateway.sock" }
local SECONDS = 0.05 -- for each step of asking

-- The client's headers that a question names (domain=header:NAME, cost=header:NAME), as lines. Bytes that the gateway
-- would reject are left out, so that no request passes uncounted because of them.
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

-- The status, the header fields and the body of an answer; nil if there is no answer.
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
