//! Reading ahead of a reader that goes through old segments in order.
//!
//! Owns: at most one window per log that is being read, or was, before anyone asked. A second read
//! that goes on where the first one stopped starts it; the third finds its bytes there. Bound over
//! the shard: [`WINDOWS`]; the one started longest ago goes first. A window that nobody fetches
//! costs memory, never a wrong answer: it is used only by a read that starts at its first byte.

use std::rc::Rc;

use reactor::{AlignedBuf, Task};

use crate::core::Core;
use crate::error::LogError;
use crate::files;
use crate::read::Window;

/// Windows of one shard, of at most 1 MiB each.
pub(crate) const WINDOWS: usize = 16;
/// Less than this is not worth a read of its own.
const LEAST_BYTES: u32 = 64 << 10;

pub(crate) struct Ahead {
    /// Unique on this shard.
    pub(crate) number: u64,
    segment: i64,
    window: Window,
    task: Task<Result<AlignedBuf, LogError>>,
}

/// Starts to read what a reader that stopped at `position` will ask for.
pub(crate) fn start(core: &Rc<Core>, segment: i64, position: u32, bytes: usize) {
    let limit = {
        let state = core.state.borrow();
        let Some(known) = state.segment(segment) else { return };
        let end = known.readable().min(known.tail.cached_from());
        if !state.is_online() || end.saturating_sub(position) < LEAST_BYTES {
            return;
        }
        known.readable()
    };
    let window = Window { start: position, bytes, limit, ends_with: None };
    let reading = Rc::clone(core);
    let replaced = core.replaced();
    let task = reactor::spawn(async move {
        let file = files::for_reading(&reading, segment).await?;
        // The position was one in the old file.
        if reading.replaced() != replaced {
            return Err(LogError::Closed(reading.name.clone()));
        }
        window.read(&reading, &file).await
    });
    let number = core.shared.note_ahead(core.me.clone());
    let old = core.state.borrow_mut().ahead.replace(Ahead { number, segment, window, task });
    // Outside of the borrow: dropping a task runs what it owns.
    drop(old);
}

/// The window that starts at `position`, if it was read ahead and could be.
pub(crate) async fn take(
    core: &Rc<Core>,
    segment: i64,
    position: u32,
) -> Option<(Window, AlignedBuf)> {
    let fits = |ahead: &mut Ahead| ahead.segment == segment && ahead.window.start == position;
    let ahead = core.state.borrow_mut().ahead.take_if(fits)?;
    let buf = ahead.task.await.ok()?;
    Some((ahead.window, buf))
}
