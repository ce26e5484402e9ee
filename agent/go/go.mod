module github.com/tollgate-dev/tollgate/agent/go

go 1.24
