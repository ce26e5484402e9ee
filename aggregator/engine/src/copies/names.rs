//! Names of domains in cells of their own size; a cell is reused when its name is removed.
//!
//! ```text
//! class 0   8 bytes   [acme····][globex··]
//! class 1  16 bytes   [203.0.113.200···]
//! ```
//!
//! For a name of eight bytes, a boxed string costs 16 bytes of pointer and 24 or more of allocator.
//! Domains come and go with their holds, so an arena that only grows would not do either. Knows
//! nothing of which domain has which name. What stays true: a handle is valid until it is freed.

use tollgate_shared::names::NAME_BYTES_MAX;

use super::chunk::Chunk;

/// The step between the sizes of cells.
const CELL: usize = 8;
const CLASSES: usize = NAME_BYTES_MAX / CELL;
/// Cells in a chunk: small, because most classes stay empty.
const CHUNK: usize = 256;
/// The most cells that one class can have: a handle has 24 bits for the cell.
pub(super) const CELLS_MAX: u32 = (1 << 24) - 1;

/// Where a name is: its length less one, and the number of its cell among those of its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRef(u32);

#[derive(Clone, Debug)]
pub(super) struct NameCells {
    classes: Vec<Class>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    chunks: Vec<Chunk<u8>>,
    cells: u32,
    free: Vec<u32>,
}

impl NameRef {
    fn new(len: usize, cell: u32) -> Self {
        Self((((len - 1) as u32) << 24) | cell)
    }

    fn len(self) -> usize {
        (self.0 >> 24) as usize + 1
    }

    fn class(self) -> usize {
        (self.len() - 1) / CELL
    }

    fn cell(self) -> usize {
        (self.0 & CELLS_MAX) as usize
    }
}

impl NameCells {
    pub(super) fn new() -> Self {
        Self {
            classes: vec![Class::default(); CLASSES],
        }
    }

    /// A copy of the present state; it shares all chunks.
    pub(super) fn freeze(&mut self) -> Self {
        let classes = self.classes.iter_mut().map(|class| Class {
            chunks: class.chunks.iter_mut().map(Chunk::share).collect(),
            cells: class.cells,
            free: class.free.clone(),
        });
        Self {
            classes: classes.collect(),
        }
    }

    /// Stores a name of 1 to [`NAME_BYTES_MAX`] bytes.
    pub(super) fn keep(&mut self, name: &str) -> NameRef {
        let size = name.len().div_ceil(CELL) * CELL;
        let class = &mut self.classes[size / CELL - 1];
        let cell = class.take_cell(size);
        let at = NameRef::new(name.len(), cell);
        let start = cell as usize % CHUNK * size;
        class.chunks[cell as usize / CHUNK].all_mut()[start..start + name.len()]
            .copy_from_slice(name.as_bytes());
        at
    }

    /// Frees a name's cell.
    pub(super) fn free(&mut self, name: NameRef) {
        self.classes[name.class()].free.push(name.cell() as u32);
    }

    /// The bytes of a name.
    #[inline]
    pub(super) fn bytes(&self, name: NameRef) -> &[u8] {
        let size = (name.class() + 1) * CELL;
        let start = name.cell() % CHUNK * size;
        &self.classes[name.class()].chunks[name.cell() / CHUNK].all()[start..start + name.len()]
    }

    /// The name. The bytes were copied from text, so they are valid UTF-8.
    pub(super) fn text(&self, name: NameRef) -> &str {
        std::str::from_utf8(self.bytes(name)).unwrap_or_default()
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let classes = self.classes.iter().enumerate().map(|(class, of)| {
            let chunk = CHUNK * (class + 1) * CELL + size_of::<Chunk<u8>>();
            of.chunks.len() * chunk + of.free.capacity() * size_of::<u32>()
        });
        classes.sum::<usize>() + self.classes.len() * size_of::<Class>()
    }
}

impl Class {
    fn take_cell(&mut self, size: usize) -> u32 {
        if let Some(cell) = self.free.pop() {
            return cell;
        }
        if (self.cells as usize).is_multiple_of(CHUNK) {
            let mut chunk = Chunk::with_room(CHUNK * size);
            chunk.all_mut().resize(CHUNK * size, 0);
            self.chunks.push(chunk);
        }
        self.cells += 1;
        self.cells - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_survive_their_neighbours() {
        let mut cells = NameCells::new();
        let names: Vec<String> = (1..=NAME_BYTES_MAX)
            .flat_map(|len| (0..5).map(move |n| format!("{n}").repeat(len)))
            .collect();
        let kept: Vec<NameRef> = names.iter().map(|name| cells.keep(name)).collect();
        for (name, at) in names.iter().zip(&kept) {
            assert_eq!(cells.text(*at), name);
        }
    }

    #[test]
    fn a_freed_cell_is_used_again() {
        let mut cells = NameCells::new();
        let first = cells.keep("acme");
        let bytes = cells.heap_bytes();
        cells.free(first);
        for n in 0..10_000 {
            let at = cells.keep(&format!("t{}", n % 10));
            assert_eq!(cells.bytes(at), format!("t{}", n % 10).as_bytes());
            cells.free(at);
        }
        assert!(cells.heap_bytes() <= bytes + 64);
    }
}
