//! Counts the allocations of a million calls on known pairs, and prints their number.
//!
//! A program of its own, because the counter wraps the allocator.

use std::process::ExitCode;

use tollgate_benches::benches::hit::make_calls;

fn main() -> ExitCode {
    let mut allocations = 0;
    let made = make_calls(|calls| {
        let counted = allocation_counter::measure(|| {
            std::hint::black_box(calls());
        });
        allocations = counted.count_total;
    });
    match made {
        Ok(()) => {
            println!("{allocations}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
