//! Tests of the arena: blocks keep what was written, and free memory is given back.

use super::*;

fn state(n: u8) -> Vec<u8> {
    vec![n; 14 + n as usize % 80]
}

fn all(arena: &Arena) -> Vec<Handle> {
    let (mut handles, mut at) = (Vec::new(), Handle(0));
    while let Some((handle, next)) = arena.next_in_use(at, &mut 1_000_000) {
        handles.extend(handle);
        at = next;
    }
    handles
}

#[test]
fn blocks_keep_their_bytes_and_are_reused() {
    let mut arena = Arena::new();
    let handles: Vec<Handle> = (0..200u8)
        .map(|n| arena.insert(Identity(n.into()), &state(n)).expect("room"))
        .collect();
    for (n, handle) in (0..200u8).zip(&handles) {
        assert_eq!(arena.identity(*handle), Identity(n.into()));
        assert!(arena.state(*handle).starts_with(&state(n)));
    }
    assert_eq!(all(&arena).len(), 200);
    for handle in handles.iter().step_by(2) {
        assert_eq!(arena.remove(*handle), [None, None]);
    }
    assert_eq!(all(&arena).len(), 100);
    let used: Vec<u32> = arena.classes.iter().map(|class| class.used).collect();
    for n in (0..200u8).step_by(2) {
        arena.insert(Identity(n.into()), &state(n));
    }
    let now: Vec<u32> = arena.classes.iter().map(|class| class.used).collect();
    assert_eq!(used, now);
}

#[test]
fn freed_memory_is_returned_whatever_stays() {
    let mut arena = Arena::new();
    let mut at: Vec<Handle> = (0..20_000u32)
        .map(|n| arena.insert(Identity(n.into()), &state(7)).expect("room"))
        .collect();
    let stays = |n: usize| n.is_multiple_of(10);
    for n in (0..at.len()).filter(|n| !stays(*n)) {
        for moved in arena.remove(at[n]).into_iter().flatten() {
            let who = arena.identity(moved.to).0 as usize;
            assert_eq!(at[who], moved.from);
            at[who] = moved.to;
        }
    }
    for n in (0..at.len()).filter(|n| stays(*n)) {
        assert_eq!(arena.identity(at[n]), Identity(n as u128));
        assert!(arena.state(at[n]).starts_with(&state(7)));
    }
    assert_eq!(all(&arena).len(), 2_000);
    let chunks: usize = arena.classes.iter().map(|class| class.chunks.len()).sum();
    let blocks = blocks_of(SIZES[Arena::index_of(&state(7)).expect("a class")]);
    assert!(chunks * blocks as usize <= 2_700, "{chunks}");
}

#[test]
fn a_frozen_copy_does_not_see_later_changes() {
    let mut arena = Arena::new();
    let handle = arena.insert(Identity(1), &state(1)).expect("room");
    let frozen = arena.freeze();
    arena.write(handle, &state(1).iter().map(|_| 9).collect::<Vec<_>>());
    arena.insert(Identity(2), &state(1));
    assert!(frozen.state(handle).starts_with(&state(1)));
    assert_eq!(arena.state(handle)[0], 9);
    assert_eq!((all(&frozen).len(), all(&arena).len()), (1, 2));
}

#[test]
fn a_walk_stops_and_resumes_at_a_position() {
    let mut arena = Arena::new();
    for n in 0..100u8 {
        arena.insert(Identity(n.into()), &state(n));
    }
    let (mut seen, mut at) = (0, Handle(0));
    while let Some((handle, next)) = arena.next_in_use(at, &mut 1) {
        seen += usize::from(handle.is_some());
        at = next;
    }
    assert_eq!(seen, 100);
}
