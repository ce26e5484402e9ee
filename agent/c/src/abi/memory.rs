//! The caller's memory: texts that are read from it, places that are written to.
//!
//! What stays true: nothing here is read or written before it is known not to be null and to be aligned. Whether the
//! memory exists is the caller's promise, which each function passes on.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use crate::answers::TgAnswer;
use crate::faults::CallFault;

/// Bytes of a domain that are read. A longer one counts as these: who may choose its bytes gets no call free.
const DOMAIN_MAX: usize = 1 << 20;

/// The greatest length of anything in memory: a greater one is a mistake of the caller.
const LEN_MAX: usize = isize::MAX as usize;

/// A domain of `len` bytes, with U+FFFD in place of those that are not UTF-8: who may choose a domain's bytes could
/// otherwise choose to have no limit. An empty one may be null, as in Go.
///
/// # Safety
///
/// `domain` is null, or points to `len` bytes that can be read, and that no thread writes to while `'a` lasts.
#[inline]
pub(super) unsafe fn domain<'a>(
    domain: *const c_char,
    len: usize,
) -> Result<Cow<'a, str>, CallFault> {
    let what = "domain";
    if len == 0 {
        return Ok(Cow::Borrowed(""));
    }
    if domain.is_null() {
        return Err(CallFault::Pointer { what });
    }
    if LEN_MAX < len {
        let max = LEN_MAX;
        return Err(CallFault::TooLong { what, len, max });
    }
    let len = len.min(DOMAIN_MAX);
    // SAFETY: not null; `len` bytes can be read and stay as they are, by this function's contract; bytes need no
    // alignment; and `len` is far below `isize::MAX`.
    let bytes = unsafe { std::slice::from_raw_parts(domain.cast::<u8>(), len) };
    // It finds out faster than `from_utf8_lossy` that all are UTF-8.
    Ok(std::str::from_utf8(bytes).map_or_else(|_| lossy(bytes), Cow::Borrowed))
}

#[cold]
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A text that ends with a NUL.
///
/// # Safety
///
/// `text` is null, or points to bytes that can be read up to and including a NUL, and that no thread writes to while
/// `'a` lasts.
pub(super) unsafe fn c_text<'a>(
    what: &'static str,
    text: *const c_char,
) -> Result<&'a str, CallFault> {
    if text.is_null() {
        return Err(CallFault::Pointer { what });
    }
    // SAFETY: not null; it ends with a NUL and stays as it is, by this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|fault| {
        let valid = fault.valid_up_to();
        CallFault::NotUtf8 { what, valid }
    })
}

/// A place to write to, initialised or not.
///
/// # Safety
///
/// `place` is null, or points to memory for a `T` that can be written to, and that nothing else uses while `'a`
/// lasts.
pub(super) unsafe fn place<'a, T>(
    what: &'static str,
    place: *mut T,
) -> Result<&'a mut MaybeUninit<T>, CallFault> {
    if place.is_null() || !place.is_aligned() {
        return Err(CallFault::Pointer { what });
    }
    // SAFETY: not null and aligned; there is memory for a `T`, used by nothing else, by this function's contract; and
    // a `MaybeUninit` may have any bytes.
    Ok(unsafe { &mut *place.cast::<MaybeUninit<T>>() })
}

/// A place for an answer; `None` if the caller passed null.
///
/// # Safety
///
/// As [`place`].
#[inline]
pub(super) unsafe fn answer<'a>(
    answer: *mut TgAnswer,
) -> Result<Option<&'a mut TgAnswer>, CallFault> {
    if answer.is_null() {
        return Ok(None);
    }
    if !answer.is_aligned() {
        return Err(CallFault::Pointer { what: "answer" });
    }
    // SAFETY: not null and aligned; there is memory for an answer, used by nothing else, by this function's contract;
    // and it may be uninitialised, since every field of a `TgAnswer` is a `MaybeUninit`.
    Ok(Some(unsafe { &mut *answer }))
}

/// A buffer of `len` bytes, initialised or not. An empty one may be null.
///
/// # Safety
///
/// `buffer` is null, or points to `len` bytes that can be written to, and that nothing else uses while `'a` lasts.
pub(super) unsafe fn buffer<'a>(buffer: *mut c_char, len: usize) -> &'a mut [MaybeUninit<u8>] {
    if buffer.is_null() || isize::MAX.cast_unsigned() < len {
        return &mut [];
    }
    // SAFETY: not null; `len` bytes, used by nothing else, can be written to, by this function's contract; bytes need
    // no alignment and may be uninitialised; and `len` is at most `isize::MAX`.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), len) }
}
