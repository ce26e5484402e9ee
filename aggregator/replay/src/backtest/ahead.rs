//! Rows of an access log, read on a thread of their own while earlier rows are put on the tape.
//!
//! ```text
//! unpack, split, parse ──batch──► number pairs, record        one core each
//!                      ◄─empty───
//! ```
//!
//! For access logs alone: no later step refuses one of their rows, so this thread knows which lines are
//! unreadable. Knows nothing of pairs and tapes. What stays true: rows come in the order of the file, as they
//! would on one thread; the number of batches is bounded, however long the file is.

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use tollgate_shared::time::Timestamp;

use crate::traffic::Rows;

/// Rows of a batch: some tens of microseconds of work, far more than handing it over costs.
const BATCH_ROWS: usize = 4_096;

/// Batches in circulation at most: one being filled, one being emptied, and some that wait.
const BATCHES_MAX: usize = 4;

/// Consecutive rows: their clients and instants.
#[derive(Debug, Default)]
struct Batch {
    clients: String,
    /// Each row's instant, and where its client ends in `clients`.
    rows: Vec<(Timestamp, u32)>,
}

/// Passes each row's instant and client to `each`, in order, until it breaks. If `strict`, reads no further
/// than the first unreadable line.
///
/// # Errors
///
/// The error of reading; every row before it has been passed.
pub fn for_each<R: BufRead + Send>(
    rows: &mut Rows<R>,
    strict: bool,
    each: &mut dyn FnMut(Timestamp, &str) -> ControlFlow<()>,
) -> io::Result<()> {
    let (filled, batches) = mpsc::sync_channel::<Batch>(BATCHES_MAX);
    let (emptied, spare) = mpsc::sync_channel::<Batch>(2 * BATCHES_MAX);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(rows, strict, (filled, spare), &ended));
        for mut batch in batches {
            if ended.load(Ordering::Relaxed) {
                continue;
            }
            let mut from = 0;
            for (at, upto) in &batch.rows {
                let client = batch.clients.get(from..*upto as usize).unwrap_or_default();
                from = *upto as usize;
                if each(*at, client).is_break() {
                    ended.store(true, Ordering::Relaxed);
                    break;
                }
            }
            batch.clients.clear();
            batch.rows.clear();
            // The channel has room for all batches; the reader may have ended.
            let _ = emptied.try_send(batch);
        }
        let result = reading.join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn read<R: BufRead>(
    rows: &mut Rows<R>,
    strict: bool,
    (filled, spare): (SyncSender<Batch>, Receiver<Batch>),
    ended: &AtomicBool,
) -> io::Result<()> {
    let batch = std::cell::RefCell::new(Batch::default());
    let send = || {
        let next = spare.try_recv().unwrap_or_default();
        // If the other side has panicked, nobody takes the batch, and this thread ends as well.
        filled.send(batch.replace(next)).is_ok()
    };
    let read = rows.for_each(
        &mut |row| {
            let mut batch = batch.borrow_mut();
            batch
                .clients
                .push_str(row.domain.as_deref().unwrap_or_default());
            let upto = batch.clients.len() as u32;
            batch.rows.push((row.at, upto));
            Ok(())
        },
        &mut |lines| {
            let is_full = BATCH_ROWS <= batch.borrow().rows.len();
            let is_gone = is_full && !send() || ended.load(Ordering::Relaxed);
            match is_gone || strict && 0 < lines.skipped() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        },
    );
    send();
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::rows::OpenedRows;
    use crate::traffic::{FileKind, Wanted};

    /// An access log of several batches, in which every thousandth line is invalid.
    fn text() -> String {
        let line = |n: usize| match n % 1_000 {
            999 => "nonsense\n".to_owned(),
            _ => format!(
                "10.0.{}.{} - - [20/Feb/2016:{:02}:{:02}:{:02} -0500] \"GET / HTTP/1.1\" 200 5\n",
                n % 7,
                n % 251,
                n / 3_600 % 24,
                n / 60 % 60,
                n % 60
            ),
        };
        (0..5 * BATCH_ROWS).map(line).collect()
    }

    fn rows(text: &str) -> Rows<&[u8]> {
        let wanted = Wanted {
            kind: Some(FileKind::AccessLog),
            ..Wanted::default()
        };
        match Rows::open(text.as_bytes(), &wanted) {
            Ok(OpenedRows::Rows(rows)) => rows,
            _ => panic!("it has rows"),
        }
    }

    #[test]
    fn rows_come_as_they_would_on_one_thread() {
        let text = text();
        let mut expected = Vec::new();
        let mut alone = rows(&text);
        let mut each = |row: crate::traffic::Row<'_>| {
            expected.push((row.at, row.domain.unwrap_or_default().into_owned()));
            Ok(())
        };
        alone
            .for_each(&mut each, &mut |_| ControlFlow::Continue(()))
            .expect("memory");
        let mut given = Vec::new();
        let mut beside = rows(&text);
        for_each(&mut beside, false, &mut |at, client| {
            given.push((at, client.to_owned()));
            ControlFlow::Continue(())
        })
        .expect("memory");
        assert!(given == expected, "{} of {}", given.len(), expected.len());
        let (a, b) = (alone.lines(), beside.lines());
        assert_eq!((a.rows(), a.skipped()), (b.rows(), b.skipped()));
        assert_eq!(a.unreadable(), b.unreadable());
    }

    #[test]
    fn strict_reading_ends_at_the_first_unreadable_line() {
        let text = text();
        let mut given = 0;
        let mut strict = rows(&text);
        for_each(&mut strict, true, &mut |_, _| {
            given += 1;
            ControlFlow::Continue(())
        })
        .expect("memory");
        assert_eq!((given, strict.lines().number()), (999, 1_000));
        let mut left = 10;
        let mut broken = rows(&text);
        for_each(&mut broken, false, &mut |_, _| {
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })
        .expect("memory");
        assert_eq!(left, 0, "no row is given after that");
    }
}
