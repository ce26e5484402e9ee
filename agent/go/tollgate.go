// Package tollgate limits how often, and how many at a time, a tenant may use a resource, across a whole fleet, decided
// in this process. It is the agent's C library (agent/c) behind cgo; pkg-config finds it.
//
//	agent, err := tollgate.Open("aggregators=127.0.0.1:7401")
//	search, err := agent.Rate("api.search")
//	if denied := search.Hit("acme"); denied != nil {
//		maps.Copy(w.Header(), denied.Header) // Retry-After, RateLimit, ...
//		w.WriteHeader(denied.Status)         // 429
//		io.WriteString(w, denied.Body)       // a problem in JSON
//		return
//	}
//
// Only Open, Ready and Close wait. Nil means that the call may proceed. After a mistake of the caller (a handle that
// was freed) a call may proceed, too: limits never break a service, and Count("calls_failed") counts such calls. Bytes
// of a domain that are not UTF-8 count as U+FFFD.
package tollgate

/*
#cgo pkg-config: tollgate
#cgo noescape tg_go_hit
#cgo nocallback tg_go_hit
#include <stdlib.h>
#include <string.h>
#include <tollgate.h>

// The result of a call. The answer is on the heap only if a call is refused.
typedef struct {
    int32_t code;
    uint32_t flags;
    uint64_t remaining;
    tg_handle handle;
    tg_answer *refusal;
} tg_go_told;

static tg_go_told tg_go_of(const tg_answer *answer, tg_handle handle) {
    tg_go_told told = {answer->code, answer->flags, answer->remaining, handle, NULL};
    if (answer->code == TG_DENIED) {
        told.refusal = malloc(sizeof *answer);
        if (told.refusal != NULL) {
            memcpy(told.refusal, answer, sizeof *answer);
        }
    }
    return told;
}

// One copy takes the shorter way.
static tg_go_told tg_go_hit(tg_handle rate, const char *domain, size_t len, uint32_t copies) {
    tg_answer answer;
    if (copies == 1) {
        tg_hit(rate, domain, len, &answer);
    } else {
        tg_hit_n(rate, domain, len, copies, &answer);
    }
    return tg_go_of(&answer, 0);
}

static tg_go_told tg_go_peek(tg_handle rate, const char *domain, size_t len) {
    tg_answer answer;
    tg_peek(rate, domain, len, &answer);
    return tg_go_of(&answer, 0);
}

static tg_go_told tg_go_estimated(tg_handle rate, const char *domain, size_t len, uint32_t copies) {
    tg_answer answer;
    tg_handle estimate = 0;
    tg_hit_estimated(rate, domain, len, copies, &estimate, &answer);
    return tg_go_of(&answer, estimate);
}

static tg_go_told tg_go_reserve(tg_handle of, const char *domain, size_t len, uint32_t copies) {
    tg_answer answer;
    tg_handle hold = 0;
    tg_reserve(of, domain, len, copies, &hold, &answer);
    return tg_go_of(&answer, hold);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// Agent decides calls in this process, and sends them to the aggregators in the background.
type Agent struct {
	handle C.tg_handle
}

// Open opens an agent with the settings that tollgate.h lists, with ";" between them. It fails on invalid settings,
// never because of the network.
func Open(settings string) (*Agent, error) {
	text, err := textOf(settings)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(text))
	return open(text)
}

// FromEnv opens an agent with settings from the environment: TOLLGATE_AGGREGATORS and the other variables of the guide.
func FromEnv() (*Agent, error) {
	return open(nil)
}

func open(settings *C.char) (*Agent, error) {
	if abi := C.tg_abi(); abi != C.TG_ABI {
		return nil, fmt.Errorf("tollgate: the library's ABI is %d, expected %d", abi, C.TG_ABI)
	}
	var agent C.tg_handle
	if err := checked(func() C.int32_t { return C.tg_open(settings, &agent) }); err != nil {
		return nil, err
	}
	return &Agent{agent}, nil
}

// textOf is a text for C, which ends at its first NUL: another one in it would cut it.
func textOf(text string) (*C.char, error) {
	if strings.IndexByte(text, 0) != -1 {
		return nil, fmt.Errorf("tollgate: a NUL in %q: expected none", text)
	}
	return C.CString(text), nil
}

// checked turns a negative code into an error. The text belongs to the calling thread, so both calls run on one thread.
func checked(call func() C.int32_t) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if 0 <= call() {
		return nil
	}
	var text [512]C.char
	C.tg_last_error(&text[0], C.size_t(len(text)))
	return errors.New("tollgate: " + C.GoString(&text[0]))
}

// Ready waits until the agent has received everything in force, at most this long. It returns whether it has. Take the
// rates and copies before: an agent learns a resource's limits once its handle was taken, and lets calls through
// before.
func (a *Agent) Ready(timeout time.Duration) bool {
	return C.tg_ready(a.handle, milliseconds(timeout)) == C.TG_OK
}

// ErrUnsent means that an agent was closed before it had sent everything: limits count too few calls.
var ErrUnsent = errors.New("tollgate: not all calls were sent within the given time")

// Close sends what was recorded, for at most this long, and ends the agent. Its handles then let calls through. It
// returns ErrUnsent if the time was too short, or no aggregator was reached. Close an agent before the process ends,
// also before os.Exit and log.Fatal, which run no deferred calls: calls that were not yet sent are lost with the
// process.
func (a *Agent) Close(timeout time.Duration) error {
	var code C.int32_t
	err := checked(func() C.int32_t {
		code = C.tg_close(a.handle, milliseconds(timeout))
		return code
	})
	if err == nil && code == C.TG_NOT_YET {
		return ErrUnsent
	}
	return err
}

// Count returns one of the counters that tell why an agent applies no limits, by its name, like connections_refused:
// see tg_count in tollgate.h.
func (a *Agent) Count(name string) (uint64, error) {
	text, err := textOf(name)
	if err != nil {
		return 0, err
	}
	defer C.free(unsafe.Pointer(text))
	var count C.uint64_t
	err = checked(func() C.int32_t { return C.tg_count(a.handle, text, &count) })
	return uint64(count), err
}

func milliseconds(timeout time.Duration) C.uint32_t {
	return C.uint32_t(min(max(timeout.Milliseconds(), 0), math.MaxUint32))
}

// Stats has an agent's counters: see tg_counts in tollgate.h.
type Stats struct {
	HitsAccepted, HitsDropped, HitsAcknowledged, RefusedAccepted, DenialsLive, HoldsLive uint64
	// BlindFor is how long the agent has received nothing current about some partition; 0 if it is up to date.
	BlindFor time.Duration
}

// Stats returns the agent's counters.
func (a *Agent) Stats() (Stats, error) {
	var counts C.tg_counts
	err := checked(func() C.int32_t { return C.tg_stats(a.handle, &counts) })
	return Stats{
		HitsAccepted:     uint64(counts.hits_accepted),
		HitsDropped:      uint64(counts.hits_dropped),
		HitsAcknowledged: uint64(counts.hits_acknowledged),
		RefusedAccepted:  uint64(counts.refused_accepted),
		DenialsLive:      uint64(counts.denials_live),
		HoldsLive:        uint64(counts.holds_live),
		BlindFor:         time.Duration(counts.blind_for_ms) * time.Millisecond,
	}, err
}

// Rate is a resource that is limited by rate. Take one at the start and keep it; any goroutine may use it.
type Rate struct {
	handle C.tg_handle
}

// Rate returns the resource of this name.
func (a *Agent) Rate(resource string) (*Rate, error) {
	name, err := textOf(resource)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	var rate C.tg_handle
	if err := checked(func() C.int32_t { return C.tg_rate(a.handle, name, &rate) }); err != nil {
		return nil, err
	}
	return &Rate{rate}, nil
}

func domainOf(domain string) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(domain))), C.size_t(len(domain))
}

// Hit counts a call of a domain. Nil means that it may proceed.
func (r *Rate) Hit(domain string) *Denied {
	return r.HitN(domain, 1)
}

// HitN counts a call that costs this many copies, all or nothing. Nil means that it may proceed.
func (r *Rate) HitN(domain string, copies uint32) *Denied {
	text, size := domainOf(domain)
	told := C.tg_go_hit(r.handle, text, size, C.uint32_t(copies))
	if told.code != C.TG_DENIED {
		return nil
	}
	return deniedOf(told.refusal)
}

// Peek returns what Hit would return; it counts nothing.
func (r *Rate) Peek(domain string) *Denied {
	text, size := domainOf(domain)
	told := C.tg_go_peek(r.handle, text, size)
	if told.code != C.TG_DENIED {
		return nil
	}
	return deniedOf(told.refusal)
}

// Record counts copies that were already used, whatever the limits are.
func (r *Rate) Record(domain string, copies uint32) {
	text, size := domainOf(domain)
	C.tg_record(r.handle, text, size, C.uint32_t(copies))
}

// HitEstimated counts a call whose cost is known only afterwards: settle the estimate then. After a refusal the
// estimate settles nothing.
func (r *Rate) HitEstimated(domain string, copies uint32) (*Estimate, *Denied) {
	text, size := domainOf(domain)
	told := C.tg_go_estimated(r.handle, text, size, C.uint32_t(copies))
	if told.code == C.TG_DENIED {
		return &Estimate{}, deniedOf(told.refusal)
	}
	estimate := &Estimate{}
	estimate.handle.Store(uint64(told.handle))
	return estimate, nil
}

// Free frees the handle: calls are let through from then on.
func (r *Rate) Free() {
	C.tg_free(r.handle)
}

// Estimate is a call whose cost is known only afterwards. Settle each estimate: otherwise its handle stays open.
type Estimate struct {
	handle atomic.Uint64
}

// Settle states the actual cost, once: a second call does nothing. It fails ten minutes after the call.
func (e *Estimate) Settle(copies uint32) error {
	handle := C.tg_handle(e.handle.Swap(0))
	return checked(func() C.int32_t { return C.tg_settle(handle, C.uint32_t(copies)) })
}

// Copies is a resource that is limited by how many copies are in use at a time.
type Copies struct {
	handle C.tg_handle
}

// Copies returns the resource of this name.
func (a *Agent) Copies(resource string) (*Copies, error) {
	name, err := textOf(resource)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	var copies C.tg_handle
	if err := checked(func() C.int32_t { return C.tg_copies(a.handle, name, &copies) }); err != nil {
		return nil, err
	}
	return &Copies{copies}, nil
}

// Reserve takes copies: release the hold when they are no longer used. After a refusal the hold is empty. Copies beyond
// holds_max are let through, and count nowhere; Count("holds_unrecorded") counts such holds.
func (c *Copies) Reserve(domain string, copies uint32) (*Hold, *Denied) {
	text, size := domainOf(domain)
	told := C.tg_go_reserve(c.handle, text, size, C.uint32_t(copies))
	if told.code == C.TG_DENIED {
		return &Hold{}, deniedOf(told.refusal)
	}
	hold := &Hold{}
	hold.handle.Store(uint64(told.handle))
	return hold, nil
}

// Free frees the handle: calls are let through from then on.
func (c *Copies) Free() {
	C.tg_free(c.handle)
}

// Hold is copies in use.
type Hold struct {
	handle atomic.Uint64
}

// Release gives all copies back; a second call does nothing.
func (h *Hold) Release() {
	C.tg_release(C.tg_handle(h.handle.Swap(0)))
}

// ReleaseN gives so many of the hold's copies back. It fails for 0 copies, and for more than the hold has. The error is
// a *RevokedError if the hold does not count any more: nothing has changed then; release it. After Release, and for an empty
// hold, it does nothing.
func (h *Hold) ReleaseN(copies uint32) error {
	handle := C.tg_handle(h.handle.Load())
	var code C.int32_t
	err := checked(func() C.int32_t {
		code = C.tg_release_n(handle, C.uint32_t(copies))
		return code
	})
	if err != nil || code == C.TG_OK {
		return err
	}
	var held C.uint32_t
	C.tg_revoked(handle, &held)
	return &RevokedError{Revoked{Reason: reasonOf(code), Copies: uint32(held)}}
}

// Revoked returns why the hold, or some of its copies, should be given up; nil if they may be kept. It never waits:
// call it between steps of the work. After Release, and for an empty hold, it returns nil.
func (h *Hold) Revoked() *Revoked {
	var copies C.uint32_t
	code := C.tg_revoked(C.tg_handle(h.handle.Load()), &copies)
	if code <= C.TG_OK {
		return nil
	}
	return &Revoked{Reason: reasonOf(code), Copies: uint32(copies)}
}

// Reason is why copies should be given up.
type Reason int

const (
	// TooMany: the copies were too many, and the resource asks for them back (on_excess = "give-back"): ReleaseN.
	TooMany Reason = iota + 1
	// Ended: the hold reached its greatest age (max_age), an operator ended it, or the agent was closed. The copies do not
	// count any more, and others may have got them: stop using them, and Release.
	Ended
	// Uncounted: no aggregator counts the hold, for instance for want of room; a service may go on.
	Uncounted
)

func reasonOf(code C.int32_t) Reason {
	switch code {
	case C.TG_GIVE_BACK:
		return TooMany
	case C.TG_ENDED:
		return Ended
	}
	return Uncounted
}

// Revoked is why so many copies of a hold should be given up.
type Revoked struct {
	Reason Reason
	Copies uint32
}

// RevokedError is why ReleaseN gave nothing back.
type RevokedError struct {
	Revoked
}

func (e *RevokedError) Error() string {
	return e.String()
}

func (r Revoked) String() string {
	switch r.Reason {
	case TooMany:
		return fmt.Sprintf("tollgate: %d copies of the hold are too many", r.Copies)
	case Ended:
		return "tollgate: the hold has ended"
	}
	return "tollgate: the hold is not counted"
}

// Denied is the answer to a call that was refused.
type Denied struct {
	// Status is for HTTP: 429, or 503 if the agent is blind and the resource has `blind = "closed"`.
	Status int
	// RetryAfter is how long to wait; 0 if the refusal does not end by itself.
	RetryAfter time.Duration
	// Code is for `tollgate explain`; empty if no aggregator refused.
	Code string
	// Header has Retry-After, Ratelimit, Ratelimit-Policy, X-Tollgate-Code and Content-Type, as far as known;
	// http.Header(denied.Header) is its type in net/http. This package does not import net/http.
	Header map[string][]string
	// Body is a problem in JSON.
	Body string
	// Never is true if this many hits can never be granted at once.
	Never bool
}

func deniedOf(refusal *C.tg_answer) *Denied {
	if refusal == nil {
		// There was no memory for the details of the refusal.
		return &Denied{Status: 429}
	}
	defer C.free(unsafe.Pointer(refusal))
	denied := &Denied{
		Status: int(refusal.status),
		Code:   C.GoString(&refusal.denial[0]),
		Header: map[string][]string{},
		Body:   C.GoString(&refusal.body[0]),
		Never:  refusal.flags&C.TG_NEVER != 0,
	}
	if wait := uint64(refusal.retry_after_ms); wait < math.MaxInt64/uint64(time.Millisecond) {
		denied.RetryAfter = time.Duration(wait) * time.Millisecond
	}
	for line := range strings.SplitSeq(C.GoString(&refusal.headers[0]), "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			denied.Header[canonical(name)] = []string{value}
		}
	}
	return denied
}

// Error describes the refusal: until when, and by which limit.
func (d *Denied) Error() string {
	until := "retry after " + d.RetryAfter.String()
	switch {
	case d.Never:
		until = "more than can ever be granted at once"
	case d.RetryAfter == 0:
		until = "does not end by itself"
	}
	if d.Code != "" {
		until += fmt.Sprintf(", code %q", d.Code)
	}
	return fmt.Sprintf("tollgate: refused with %d, %s", d.Status, until)
}

// canonical writes the name of a header field like net/http.
func canonical(name string) string {
	words := strings.Split(name, "-")
	for i, word := range words {
		if word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "-")
}
