//! The free list of aligned blocks of one thread, bounded in bytes.
//!
//! A block may be dropped on another thread than the one that took it; it then joins that thread's
//! list, or is freed where that is full. Memory of a block is always initialised.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::ALIGN;

/// Bytes that a thread keeps for reuse unless [`retain_at_most`] says otherwise. [`release`] leaves these.
pub const RETAINED_BYTES_MAX: usize = 32 << 20;

/// From this size on a block is a mapping of its own: the kernel's pages are zeros, and nobody has to
/// write those a second time.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// Different sizes kept at once; more would only make the search slow.
const SIZES_MAX: usize = 32;

/// Owned, aligned, initialised memory.
pub(super) struct Block {
    memory: Memory,
    capacity: usize,
}

/// Where the memory of a block starts, and to whom it goes back.
#[derive(Clone, Copy)]
struct Memory {
    start: NonNull<u8>,
    /// It is a mapping of its own, not the allocator's.
    mapped: bool,
}

// SAFETY: a block owns its memory, which no thread-local state refers to.
unsafe impl Send for Block {}
// SAFETY: a shared block hands out only its address and size; who reads or writes through the
// address argues for that access itself.
unsafe impl Sync for Block {}

impl Block {
    /// At least `capacity` bytes, rounded up to the alignment. Contents are zero if `zero`, else
    /// whatever an earlier owner left.
    pub(super) fn take(capacity: usize, zero: bool) -> Self {
        let capacity = match capacity.max(1).checked_next_multiple_of(ALIGN) {
            Some(capacity) => capacity,
            None => panic!("a buffer of {capacity} bytes was asked for"),
        };
        if let Some(memory) = POOL.try_with(|p| p.borrow_mut().take(capacity)).ok().flatten() {
            if zero {
                // SAFETY: the block is ours alone and `capacity` bytes long.
                unsafe { memory.start.as_ptr().write_bytes(0, capacity) };
            }
            return Self { memory, capacity };
        }
        // What is in use and what is kept together stay as large as they were.
        let _ = POOL.try_with(|p| p.borrow_mut().release(capacity));
        match fresh(capacity, map) {
            Some(memory) => Self { memory, capacity },
            None => handle_alloc_error(layout(capacity)),
        }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let kept =
            POOL.try_with(|p| p.borrow_mut().give(self.memory, self.capacity)).unwrap_or(false);
        if !kept {
            free(self.memory, self.capacity);
        }
    }
}

/// Changes how many bytes the calling thread keeps for reuse.
pub fn retain_at_most(bytes: usize) {
    POOL.with(|p| p.borrow_mut().limit = bytes);
}

/// Bytes the calling thread holds for reuse now.
pub fn retained_bytes() -> usize {
    POOL.with(|p| p.borrow().retained)
}

/// Bytes that the calling thread has held for reuse all the time since the last call of this.
pub fn unused_bytes() -> usize {
    POOL.with(|p| {
        let mut pool = p.borrow_mut();
        let lowest = pool.lowest;
        pool.lowest = pool.retained;
        lowest
    })
}

/// Gives `bytes` that the calling thread holds for reuse back to the kernel, the last block whole, as far
/// as they are beyond [`RETAINED_BYTES_MAX`]; returns how many. Takes up to 0.1 ms a megabyte.
pub fn release(bytes: usize) -> usize {
    POOL.with(|p| p.borrow_mut().release(bytes))
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new(RETAINED_BYTES_MAX)) };
}

struct Pool {
    sizes: Vec<(usize, Vec<Memory>)>,
    retained: usize,
    /// Least of `retained` since somebody asked.
    lowest: usize,
    limit: usize,
}

impl Pool {
    const fn new(limit: usize) -> Self {
        Pool { sizes: Vec::new(), retained: 0, lowest: 0, limit }
    }

    fn take(&mut self, capacity: usize) -> Option<Memory> {
        let (_, blocks) = self.sizes.iter_mut().find(|(size, _)| *size == capacity)?;
        let block = blocks.pop()?;
        self.retained -= capacity;
        self.lowest = self.lowest.min(self.retained);
        Some(block)
    }

    /// Frees blocks until it is `bytes` or more, but not the last [`RETAINED_BYTES_MAX`].
    fn release(&mut self, bytes: usize) -> usize {
        let most = self.retained.saturating_sub(RETAINED_BYTES_MAX);
        let mut freed = 0;
        for (capacity, blocks) in &mut self.sizes {
            while freed < bytes
                && freed + *capacity <= most
                && let Some(memory) = blocks.pop()
            {
                free(memory, *capacity);
                freed += *capacity;
            }
        }
        self.retained -= freed;
        self.lowest = self.lowest.min(self.retained);
        freed
    }

    fn give(&mut self, memory: Memory, capacity: usize) -> bool {
        if self.retained + capacity > self.limit {
            return false;
        }
        let found = self.sizes.iter().position(|(size, _)| *size == capacity);
        let index = match found {
            Some(index) => index,
            None => match self.new_size(capacity) {
                Some(index) => index,
                None => return false,
            },
        };
        self.sizes[index].1.push(memory);
        self.retained += capacity;
        true
    }

    /// A list for a size not seen yet, in place of an empty one if there are too many.
    fn new_size(&mut self, capacity: usize) -> Option<usize> {
        if self.sizes.len() < SIZES_MAX {
            self.sizes.push((capacity, Vec::new()));
            return Some(self.sizes.len() - 1);
        }
        let index = self.sizes.iter().position(|(_, blocks)| blocks.is_empty())?;
        self.sizes[index].0 = capacity;
        Some(index)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (capacity, blocks) in self.sizes.drain(..) {
            for memory in blocks {
                free(memory, capacity);
            }
        }
    }
}

fn layout(capacity: usize) -> Layout {
    match Layout::from_size_align(capacity, ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("a buffer of {capacity} bytes was asked for"),
    }
}

/// Zeros; `None` if there is no memory. Where the kernel makes no more mappings, of which a process has
/// a bounded number (`vm.max_map_count`), the allocator may still have memory.
fn fresh(capacity: usize, map: impl Fn(usize) -> Option<NonNull<u8>>) -> Option<Memory> {
    if capacity >= MAPPED_BYTES_MIN
        && let Some(start) = map(capacity)
    {
        return Some(Memory { start, mapped: true });
    }
    // SAFETY: the size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout(capacity)) })?;
    Some(Memory { start, mapped: false })
}

fn map(capacity: usize) -> Option<NonNull<u8>> {
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping, at no address in particular, touches nothing that exists.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), capacity, flags, MapFlags::PRIVATE) };
    NonNull::new(mapped.ok()?.cast())
}

fn free(memory: Memory, capacity: usize) {
    if !memory.mapped {
        // SAFETY: the block came from `alloc_zeroed` with this very layout and has no owner left.
        unsafe { dealloc(memory.start.as_ptr(), layout(capacity)) };
        return;
    }
    // SAFETY: the block is a whole mapping made by `map` and has no owner left.
    let unmapped = unsafe { munmap(memory.start.as_ptr().cast(), capacity) };
    debug_assert!(unmapped.is_ok(), "a mapping of ours can be given back");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_mapping_the_allocator_is_asked() {
        for (map, mapped) in [(map as fn(usize) -> _, true), (|_| None, false)] {
            let Some(memory) = fresh(MAPPED_BYTES_MIN, map) else { panic!("no memory") };
            assert_eq!(memory.mapped, mapped);
            let mut pool = Pool::new(MAPPED_BYTES_MIN);
            assert!(pool.give(memory, MAPPED_BYTES_MIN));
            let again = pool.take(MAPPED_BYTES_MIN);
            assert_eq!(again.map(|again| again.mapped), Some(mapped), "it goes back as it came");
            // SAFETY: the block is ours alone, initialised, and that long.
            let bytes =
                unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), MAPPED_BYTES_MIN) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            free(memory, MAPPED_BYTES_MIN);
        }
    }

    /// In use and kept together never are more than the most that ever was in use, and a little.
    #[test]
    fn what_is_kept_makes_way_for_other_sizes_and_goes_when_nobody_needs_it() {
        const LARGE: usize = 2 << 20;
        const MANY: usize = 2 * RETAINED_BYTES_MAX / LARGE;
        std::thread::spawn(|| {
            retain_at_most(3 * RETAINED_BYTES_MAX);
            let take = |many, capacity| -> Vec<Block> {
                (0..many).map(|_| Block::take(capacity, false)).collect()
            };
            drop(take(MANY, LARGE));
            assert_eq!(retained_bytes(), 2 * RETAINED_BYTES_MAX);
            let halves = take(MANY, LARGE / 2);
            assert_eq!(retained_bytes(), RETAINED_BYTES_MAX, "the larger ones made way");
            drop(halves);
            assert_eq!(retained_bytes(), 2 * RETAINED_BYTES_MAX);
            unused_bytes();
            drop(take(1, LARGE));
            let unused = 2 * RETAINED_BYTES_MAX - LARGE;
            assert_eq!(unused_bytes(), unused, "one was in use meanwhile");
            assert_eq!(release(LARGE), LARGE);
            assert_eq!(release(usize::MAX), RETAINED_BYTES_MAX - LARGE);
            assert_eq!((retained_bytes(), release(usize::MAX)), (RETAINED_BYTES_MAX, 0));
        })
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
