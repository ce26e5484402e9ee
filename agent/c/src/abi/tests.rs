//! Tests of callers' mistakes, and of answers; without an aggregator.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;

const INVALID: i32 = -1;
const NOT_UTF8: i32 = -2;
const NOT_OPEN: i32 = -3;
const NO_SETTINGS: i32 = -4;

/// An agent that reaches no aggregator: no aggregator listens on port 1.
fn open() -> u64 {
    let settings = CString::new("aggregators=127.0.0.1:1; holds_max=64").unwrap();
    let mut agent = 0;
    // SAFETY: a text with a NUL, and a place for a handle.
    assert_eq!(unsafe { tg_open(settings.as_ptr(), &mut agent) }, ALLOWED);
    agent
}

fn rate(agent: u64) -> u64 {
    let mut rate = 0;
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_rate(agent, c"api.search".as_ptr(), &mut rate) };
    assert_eq!(code, ALLOWED);
    rate
}

fn hit(rate: u64, domain: &[u8], answer: *mut TgAnswer) -> i32 {
    // SAFETY: the slice has this many bytes; tests pass a place for an answer or null.
    unsafe { tg_hit(rate, domain.as_ptr().cast(), domain.len(), answer) }
}

fn last_error() -> String {
    let mut buffer = [0_u8; 1_024];
    // SAFETY: the buffer has this many bytes.
    let len = unsafe { tg_last_error(buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

/// An answer in memory with arbitrary content, like C's stack.
fn dirty() -> Box<MaybeUninit<TgAnswer>> {
    let mut answer = Box::new(MaybeUninit::<TgAnswer>::uninit());
    // SAFETY: the box has room for one answer.
    unsafe { std::ptr::write_bytes(answer.as_mut_ptr(), 0xa5, 1) };
    answer
}

fn head(answer: &MaybeUninit<TgAnswer>) -> crate::answers::TgAnswerHead {
    // SAFETY: all bytes of it were written, by `dirty`.
    let answer = unsafe { answer.assume_init_ref() };
    // SAFETY: the same.
    unsafe { answer.head.assume_init() }
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn null_pointers_are_errors() {
    let agent = open();
    let rate = rate(agent);
    // SAFETY: null is what the test passes.
    unsafe {
        assert_eq!(tg_hit(rate, null(), 3, null_mut()), INVALID);
    }
    assert_eq!(last_error(), "domain: is null or not aligned");
    // SAFETY: null is what the test passes.
    let code = unsafe { tg_rate(agent, null(), &mut 0) };
    assert_eq!(code, INVALID);
    // SAFETY: null is what the test passes.
    let code = unsafe { tg_rate(agent, c"a".as_ptr(), null_mut()) };
    assert_eq!(code, INVALID);
    // SAFETY: null is what the test passes.
    assert_eq!(unsafe { tg_stats(agent, null_mut()) }, INVALID);
    // SAFETY: null is what the test passes.
    assert_eq!(unsafe { tg_last_error(null_mut(), 9) }, last_error().len());
    assert_eq!(hit(rate, b"", null_mut()), ALLOWED, "a domain of no bytes");
    tg_free(rate);
    tg_close(agent, 0);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn a_name_that_is_not_utf8_and_an_impossible_length_are_errors() {
    let agent = open();
    let (rate, mut none) = (rate(agent), 7);
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_rate(agent, c"ap\xffi".as_ptr(), &mut none) };
    assert_eq!((code, none), (NOT_UTF8, 0));
    assert_eq!(last_error(), "resource: not UTF-8 after 2 bytes");
    let mut answer = dirty();
    // SAFETY: the test passes an invalid length; it is refused before a byte is read.
    let code = unsafe { tg_hit(rate, c"acme".as_ptr(), usize::MAX, answer.as_mut_ptr()) };
    assert_eq!(code, INVALID);
    let of_fault = head(&answer);
    assert_eq!((of_fault.code, of_fault.status), (INVALID, 200), "go on");
    tg_free(rate);
    tg_close(agent, 0);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn freed_and_foreign_handles_are_errors() {
    let agent = open();
    let rate = rate(agent);
    assert_eq!(hit(rate, b"acme", null_mut()), ALLOWED);
    assert_eq!(hit(agent, b"acme", null_mut()), NOT_OPEN, "an agent's");
    assert_eq!(tg_release(rate), NOT_OPEN, "a rate's");
    assert_eq!(tg_free(agent), NOT_OPEN, "an agent is closed");
    assert_eq!(tg_free(rate), ALLOWED);
    assert_eq!(tg_free(rate), NOT_OPEN, "twice");
    assert_eq!(hit(rate, b"acme", null_mut()), NOT_OPEN);
    assert_eq!(
        last_error(),
        format!("handle {rate:#x}: expected a rate that is open")
    );
    assert_eq!(hit(0, b"acme", null_mut()), NOT_OPEN);
    assert_eq!((tg_free(0), tg_release(0), tg_settle(0, 1)), (0, 0, 0));
    assert_eq!(tg_close(agent, 0), NOT_YET, "a call went unsent");
    assert_eq!(tg_close(agent, 0), NOT_OPEN);
    assert_eq!(tg_ready(agent, 0), NOT_OPEN);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn a_blind_agent_lets_calls_through_and_reports_it() {
    let agent = open();
    let rate = rate(agent);
    let mut answer = dirty();
    assert_eq!(tg_ready(agent, 1), NOT_YET);
    assert_eq!(hit(rate, b"acme", answer.as_mut_ptr()), ALLOWED);
    let of_hit = head(&answer);
    assert_eq!((of_hit.flags, of_hit.status, of_hit.copies), (1, 200, 1));
    assert_eq!(of_hit.remaining, u64::MAX);
    let mut counts = TgCounts::default();
    // SAFETY: a place for counts.
    assert_eq!(unsafe { tg_stats(agent, &mut counts) }, ALLOWED);
    assert_eq!(counts.hits_accepted, 1);
    assert!(1 <= counts.blind_for_ms);
    let mut welcomes = 7;
    // SAFETY: a text with a NUL, and a place for a number.
    let code = unsafe { tg_count(agent, c"welcomes".as_ptr(), &mut welcomes) };
    assert_eq!((code, welcomes), (ALLOWED, 0));
    welcomes = 7;
    // SAFETY: the same.
    let code = unsafe { tg_count(agent, c"welcome".as_ptr(), &mut welcomes) };
    assert_eq!((code, welcomes), (INVALID, 0));
    assert!(last_error().starts_with("\"welcome\": no counter of this name"));
    assert_eq!(tg_close(agent, 0), NOT_YET, "a call went unsent");
    assert_eq!(hit(rate, b"acme", null_mut()), ALLOWED, "after the end");
    assert_eq!(tg_free(rate), ALLOWED);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn estimates_are_settled_once_and_holds_released_once() {
    let agent = open();
    let rate = rate(agent);
    let (mut estimate, mut copies, mut hold) = (0, 0, 0);
    let domain = c"acme".as_ptr();
    // SAFETY: a text of four bytes, and a place for a handle.
    let code = unsafe { tg_hit_estimated(rate, domain, 4, 800, &mut estimate, null_mut()) };
    assert_eq!(code, ALLOWED);
    assert_eq!(tg_settle(estimate, 620), ALLOWED);
    assert_eq!(tg_settle(estimate, 620), NOT_OPEN);
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_copies(agent, c"jobs".as_ptr(), &mut copies) };
    assert_eq!(code, ALLOWED);
    // SAFETY: a text of four bytes, and a place for a handle.
    let code = unsafe { tg_reserve(copies, domain, 4, 2, &mut hold, null_mut()) };
    assert_eq!(code, ALLOWED);
    assert_eq!(tg_settle(hold, 1), NOT_OPEN, "a hold's");
    assert_eq!(tg_release(hold), ALLOWED);
    assert_eq!(tg_release(hold), NOT_OPEN);
    // SAFETY: a text of four bytes, and a place for a handle.
    let code = unsafe { tg_reserve(copies, domain, 4, 0, &mut hold, null_mut()) };
    assert_eq!((code, hold), (INVALID, 0), "no copies");
    assert_eq!((tg_free(rate), tg_free(copies)), (ALLOWED, ALLOWED));
    tg_close(agent, 0);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn some_copies_of_a_hold_are_given_back() {
    const ENDED: i32 = 4;
    let agent = open();
    let (mut copies, mut hold) = (0, 0);
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_copies(agent, c"jobs".as_ptr(), &mut copies) };
    assert_eq!(code, ALLOWED);
    // SAFETY: a text of four bytes, and a place for a handle.
    let code = unsafe { tg_reserve(copies, c"acme".as_ptr(), 4, 3, &mut hold, null_mut()) };
    assert_eq!(code, ALLOWED);
    let revoked = |hold| {
        let mut copies = 7;
        // SAFETY: a place for a number.
        (unsafe { tg_revoked(hold, &mut copies) }, copies)
    };
    assert_eq!((revoked(hold), revoked(0)), ((ALLOWED, 0), (ALLOWED, 0)));
    assert_eq!(tg_release_n(hold, 2), ALLOWED);
    assert_eq!(tg_release_n(hold, 2), INVALID);
    assert_eq!(last_error(), "2 copies of a hold that has 1");
    assert_eq!(tg_release_n(hold, 0), INVALID);
    assert_eq!((tg_release_n(0, 0), tg_release_n(copies, 1)), (0, NOT_OPEN));
    // SAFETY: null is what the test passes.
    assert_eq!(unsafe { tg_revoked(hold, null_mut()) }, INVALID);
    assert_eq!(last_error(), "copies: is null or not aligned");
    tg_close(agent, 0);
    assert_eq!(revoked(hold), (ENDED, 1), "the agent has ended");
    assert_eq!((tg_release_n(hold, 1), revoked(hold)), (0, (ALLOWED, 0)));
    assert_eq!((tg_release(hold), tg_free(copies)), (ALLOWED, ALLOWED));
    assert_eq!(
        (tg_release_n(hold, 1), revoked(hold)),
        (NOT_OPEN, (NOT_OPEN, 0))
    );
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn holds_beyond_the_most_are_let_through_and_reported() {
    const HOLDS_MAX: u64 = 64;
    const UNHELD: u32 = 16;
    let agent = open();
    let (mut copies, mut hold) = (0, 0);
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_copies(agent, c"jobs".as_ptr(), &mut copies) };
    assert_eq!(code, ALLOWED);
    for number in 1..=HOLDS_MAX + 6 {
        let mut answer = dirty();
        let place = answer.as_mut_ptr();
        // SAFETY: a text of four bytes, and places for a handle and an answer.
        let code = unsafe { tg_reserve(copies, c"acme".as_ptr(), 4, 1, &mut hold, place) };
        assert_eq!((code, hold != 0), (ALLOWED, true), "{number}");
        let is_unheld = head(&answer).flags & UNHELD != 0;
        assert_eq!(is_unheld, HOLDS_MAX < number, "{number}");
    }
    let mut unrecorded = 0;
    // SAFETY: a text with a NUL, and a place for a number.
    let code = unsafe { tg_count(agent, c"holds_unrecorded".as_ptr(), &mut unrecorded) };
    assert_eq!((code, unrecorded), (ALLOWED, 6));
    tg_free(copies);
    tg_close(agent, 0);
    let mut copies = 7;
    // SAFETY: a place for a number.
    let code = unsafe { tg_revoked(hold, &mut copies) };
    assert_eq!((code, copies), (ALLOWED, 0), "the last one was never held");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn whatever_fails_no_earlier_handle_stays_in_its_place() {
    const EARLIER: u64 = 7;
    let agent = open();
    let (rate, mut copies) = (rate(agent), 0);
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_copies(agent, c"jobs".as_ptr(), &mut copies) };
    assert_eq!(code, ALLOWED);
    for (what, domain, len, code) in [
        ("null", null(), 3, INVALID),
        ("too long", c"acme".as_ptr(), usize::MAX, INVALID),
    ] {
        let (mut hold, mut estimate) = (EARLIER, EARLIER);
        // SAFETY: null, a text, or a length that is refused before a byte is read; and a place for a handle.
        let reserved = unsafe { tg_reserve(copies, domain, len, 1, &mut hold, null_mut()) };
        assert_eq!((reserved, hold), (code, 0), "{what}");
        // SAFETY: the same.
        let hit = unsafe { tg_hit_estimated(rate, domain, len, 1, &mut estimate, null_mut()) };
        assert_eq!((hit, estimate), (code, 0), "{what}");
    }
    let mut hold = EARLIER;
    // SAFETY: a text of four bytes, and a place for a handle.
    let code = unsafe { tg_reserve(rate, c"acme".as_ptr(), 4, 1, &mut hold, null_mut()) };
    assert_eq!((code, hold), (NOT_OPEN, 0), "a rate's");
    for open in [tg_rate, tg_copies] {
        let mut resource = EARLIER;
        // SAFETY: null, and a place for a handle.
        let code = unsafe { open(agent, null(), &mut resource) };
        assert_eq!((code, resource), (INVALID, 0));
    }
    assert_eq!((tg_free(rate), tg_free(copies)), (ALLOWED, ALLOWED));
    tg_close(agent, 0);
}

#[test]
fn bad_settings_are_named() {
    let mut agent = 7;
    // SAFETY: a text with a NUL, and a place for a handle.
    let code = unsafe { tg_open(c"agregators=a:1".as_ptr(), &mut agent) };
    assert_eq!((code, agent), (NO_SETTINGS, 0));
    assert!(last_error().contains("\"agregators\": not known"));
    let mut short = [0x7f_u8; 9];
    // SAFETY: the buffer has this many bytes.
    let len = unsafe { tg_last_error(short.as_mut_ptr().cast(), short.len()) };
    assert_eq!((&short, 9 < len), (b"settings\0", true), "cut, with a NUL");
    // SAFETY: the buffer has this many bytes.
    unsafe { tg_last_error(short.as_mut_ptr().cast(), 1) };
    assert_eq!(&short, b"\0ettings\0");
}

#[test]
fn a_panic_is_a_code() {
    let panicked = guarded(|| panic!("on purpose"));
    assert_eq!(panicked, -8);
    assert!(last_error().starts_with("a fault of the library"));
}

#[test]
fn texts_are_read_as_passed() {
    for (bytes, len, expected) in [
        (c"acme", 3, "acm"),
        (c"\xc3\xa9", 2, "\u{e9}"),
        (c"ac\xffme", 5, "ac\u{fffd}me"),
        // Cut within a character.
        (c"\xc3\xa9", 1, "\u{fffd}"),
    ] {
        // SAFETY: this many bytes of a text that stays.
        let domain = unsafe { memory::domain(bytes.as_ptr(), len) }.unwrap();
        assert_eq!(domain, expected);
        let is_borrowed = matches!(domain, std::borrow::Cow::Borrowed(_));
        assert_eq!(is_borrowed, !expected.contains('\u{fffd}'), "{expected}");
    }
    // SAFETY: a text with a NUL that stays.
    let text = unsafe { memory::c_text("resource", c"acme".as_ptr()) };
    assert_eq!(text.unwrap(), "acme");
    let mut places = [0_u64; 2];
    let odd = places.as_mut_ptr().wrapping_byte_add(1);
    // SAFETY: eight bytes of sixteen, if they were aligned.
    let place = unsafe { memory::place("handle", odd) };
    assert!(place.is_err(), "not aligned");
}

#[test]
fn a_long_domain_counts_by_its_beginning() {
    let mut bytes = vec![b'a'; 1 << 20];
    let shortest = bytes.len();
    bytes.extend(b"beyond");
    let read = |len| {
        // SAFETY: the list has as many bytes, or the length is refused.
        let domain = unsafe { memory::domain(bytes.as_ptr().cast(), len) };
        domain.map(|domain| domain.len())
    };
    assert_eq!(read(shortest).ok(), Some(shortest));
    assert_eq!(read(bytes.len()).ok(), Some(shortest));
    let fault = read(usize::MAX).expect_err("no memory has so much");
    assert!(matches!(fault, CallFault::TooLong { .. }), "{fault}");
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "opens sockets")]
fn the_threads_of_an_agent_block_sigpipe() {
    let agent = open();
    // A thread has its name only once it runs.
    let end = Instant::now() + Duration::from_secs(20);
    while of_agents().len() < 2 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let threads = of_agents();
    assert!(2 <= threads.len(), "{threads:?}");
    for (name, blocked) in threads {
        assert_ne!(blocked & 1 << (libc::SIGPIPE - 1), 0, "{name}");
    }
    tg_close(agent, 1_000);
}

/// The threads of agents in this process, each with the signals that it blocks.
#[cfg(target_os = "linux")]
fn of_agents() -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let read = |name: &str| std::fs::read_to_string(task.as_ref().unwrap().path().join(name));
        // A thread of another test may have ended.
        let (Ok(name), Ok(status)) = (read("comm"), read("status")) else {
            continue;
        };
        if name.starts_with("tollgate-") {
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
            let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
            found.push((name, blocked));
        }
    }
    found
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn handles_are_used_and_freed_by_many_threads() {
    let agent = open();
    let current = AtomicU64::new(rate(agent));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let code = hit(current.load(Ordering::Relaxed), b"acme", null_mut());
                    assert!([ALLOWED, NOT_OPEN].contains(&code), "{code}");
                }
            });
        }
        for _ in 0..200 {
            let old = current.swap(rate(agent), Ordering::Relaxed);
            assert_eq!(tg_free(old), ALLOWED);
        }
    });
    tg_free(current.into_inner());
    tg_close(agent, 0);
}
