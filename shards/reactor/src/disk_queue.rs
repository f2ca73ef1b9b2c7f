//! The queues in front of the disks: which file operation of which class goes to the kernel now.
//!
//! One queue per file system of the shard, told apart by its device number, so that a disk that is
//! slow or hangs holds up its own operations only; what concerns names outside of any known disk
//! shares one more. Lives in the executor, above the drivers. On an idle disk an operation passes
//! straight through: two counters, nothing allocated.
//!
//! | class | limit in flight | while producers use the disk |
//! |---|---|---|
//! | Produce | [`limits`]: deep enough for any disk | the same; it waits for no other class |
//! | others | [`limits`], and [`TOGETHER`] in all | smaller limits, so that a device's own queue stays short |
//! | Backfill, Background | as others | their data together within a window that follows the producers' latency, `bulk_window.rs` |
//!
//! Within the limits the class that has paid least (bytes, weighted by its share) goes next. Each
//! class may always have one operation in flight, bulk data after a pause at most: none starves. All
//! limits together bound what a disk that hangs takes of the shard ([`OPS_MAX`], `workers.rs`).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bulk_window::{self, BulkWindow};
use crate::driver::Token;
use crate::exec::{CLASSES, Class};
use crate::op::{Op, OpPath};
use crate::time::Instant;

/// Names a queue of this shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DiskId(u16);

/// Disks of one shard that have a queue of their own; further ones share the first.
const DISKS_MAX: usize = 256;

/// Producers use a disk until they have written nothing to it for this long.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// What an operation without data costs.
const PLAIN_COST: u32 = 16 << 10;

/// Operations and bytes that may be with the kernel at a time.
#[derive(Clone, Copy)]
struct Limits {
    ops: u32,
    bytes: u64,
}

/// Operations of all classes together.
pub(crate) const OPS_MAX: u32 = {
    let (mut all, mut at) = (0, 0);
    while at < CLASSES {
        all += limits(Class::ALL[at], false).ops;
        at += 1;
    }
    all
};

/// All classes but Produce together, on a quiet disk and beside producers.
const TOGETHER: [u64; 2] = [32 << 20, 6 << 20];

const fn limits(class: Class, beside_producers: bool) -> Limits {
    let (ops, mib) = match (class, beside_producers) {
        (Class::Produce, _) => (128, 1 << 40),
        (Class::TailFetch, false) => (64, 16),
        (Class::TailFetch, true) => (32, 4),
        (Class::Replication, false) => (32, 16),
        (Class::Replication, true) => (16, 4),
        (Class::Backfill, false) => (32, 8),
        (Class::Backfill, true) => (8, 2),
        (Class::Background, false) => (16, 8),
        (Class::Background, true) => (4, 1),
    };
    Limits { ops, bytes: mib << 20 }
}

/// What an operation holds from its admission to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    disk: DiskId,
    class: Class,
    cost: u32,
    kind: Kind,
    /// When the kernel got it; while it waits, when it was handed in.
    began: Instant,
    /// It waits for its turn here.
    waits: bool,
}

/// What an operation is to the window of bulk data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Counts in it.
    Bulk,
    /// A producer's: a small one moves it.
    Produced {
        small: bool,
        synced: bool,
    },
    /// May take long on a disk that works.
    Long,
    Other,
}

impl Ticket {
    pub(crate) fn began(self) -> Instant {
        self.began
    }

    /// When it began, if it is with the kernel for that disk and should be over soon.
    pub(crate) fn due_at(self, disk: DiskId) -> Option<Instant> {
        let counts = self.disk == disk && self.kind != Kind::Long && !self.waits;
        counts.then_some(self.began)
    }

    /// Started now.
    pub(crate) fn begun(self, now: Instant) -> Self {
        Self { began: now, waits: false, ..self }
    }

    pub(crate) fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }
}

/// All queues of a shard. The first is that of names without a known disk.
pub(crate) struct DiskQueues {
    queues: Vec<DiskQueue>,
    /// Directories whose names belong to a disk.
    roots: Vec<(PathBuf, DiskId)>,
}

#[derive(Default)]
struct DiskQueue {
    device: Option<u64>,
    lanes: [Lane; CLASSES],
    /// Operations in all lanes that wait.
    waiting: usize,
    /// What waits at the front of a lane waits for this moment; kept until all fronts are looked at
    /// again, also when it is past.
    paused_until: Option<Instant>,
    /// Bytes in flight of all classes but Produce.
    shared_bytes: u64,
    bulk: BulkWindow,
    /// Where the class that went last stood; never goes back.
    present: u64,
    /// Writes of producers in flight.
    producing: u32,
    last_produced: Option<Instant>,
}

#[derive(Default)]
struct Lane {
    /// Bounded by the operations in flight of the shard.
    waiting: VecDeque<(Token, Op, Ticket)>,
    ops: u32,
    bytes: u64,
    /// Weighted bytes.
    paid: u64,
    counts: LaneCounts,
}

/// Totals since the start and what is there now.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct LaneCounts {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
    pub(crate) delayed: u64,
    /// From its admission to its end, of all that ended.
    pub(crate) took: Duration,
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
}

impl Default for DiskQueues {
    fn default() -> Self {
        Self { queues: vec![DiskQueue::default()], roots: Vec::new() }
    }
}

impl DiskQueues {
    /// The queue of a device.
    pub(crate) fn of_device(&mut self, device: u64) -> DiskId {
        let known = self.queues.iter().position(|queue| queue.device == Some(device));
        if let Some(at) = known {
            return DiskId(at as u16);
        }
        if self.queues.len() >= DISKS_MAX {
            return DiskId::default();
        }
        self.queues.push(DiskQueue { device: Some(device), ..DiskQueue::default() });
        DiskId((self.queues.len() - 1) as u16)
    }

    /// From now on names in `root` count as operations of that disk.
    pub(crate) fn add_root(&mut self, root: &Path, disk: DiskId) {
        self.roots.retain(|(known, _)| known != root);
        self.roots.push((root.to_owned(), disk));
    }

    /// What `op` will hold; `None` for what is no business of a disk.
    pub(crate) fn ticket(&self, op: &Op, class: Class, now: Instant) -> Option<Ticket> {
        let (disk, cost) = match op {
            Op::Read { file, buf, filled, .. } => (file.disk(), (buf.capacity() - filled) as u64),
            Op::Write { file, bufs, done, .. } => {
                let total: usize = bufs.iter().map(|b| b.as_ref().len()).sum();
                (file.disk(), (total - done) as u64)
            }
            Op::Sync { file, .. }
            | Op::SetLen { file, .. }
            | Op::Allocate { file, .. }
            | Op::StatFile { file, .. } => (file.disk(), 0),
            Op::Open { path, .. }
            | Op::OpenDir { path }
            | Op::StatPath { path, .. }
            | Op::Remove { path, .. }
            | Op::MakeDir { path }
            | Op::ReadDir { path, .. }
            | Op::Space { path, .. }
            | Op::SyncDisk { path, .. }
            | Op::Lock { path }
            | Op::Rename { to: path, .. } => (self.disk_of(path), 0),
            _ => return None,
        };
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).max(PLAIN_COST);
        let kind = match (op, class) {
            (Op::Read { .. } | Op::Write { .. }, Class::Backfill | Class::Background) => Kind::Bulk,
            (Op::Write { sync, .. }, Class::Produce) => {
                Kind::Produced { small: cost <= bulk_window::SMALL_WRITE, synced: *sync }
            }
            (Op::SyncDisk { .. }, _) => Kind::Long,
            _ => Kind::Other,
        };
        Some(Ticket { disk, class, cost, kind, began: now, waits: false })
    }

    fn disk_of(&self, path: &OpPath) -> DiskId {
        self.disk_of_path(path.as_path())
    }

    pub(crate) fn disk_of_path(&self, path: &Path) -> DiskId {
        let holds = |(root, _): &&(PathBuf, DiskId)| path.starts_with(root);
        self.roots.iter().find(holds).map_or(DiskId::default(), |(_, disk)| *disk)
    }

    /// Gives `op` back if it may go to the kernel at once, else keeps it.
    pub(crate) fn admit(
        &mut self,
        ticket: Ticket,
        token: Token,
        op: Op,
        now: Instant,
    ) -> Option<Op> {
        let Some(queue) = self.queues.get_mut(usize::from(ticket.disk.0)) else { return Some(op) };
        // Looking at a disk or opening a file on it is not producing.
        if matches!(ticket.kind, Kind::Produced { .. }) {
            queue.last_produced = Some(now);
        }
        let lane = &mut queue.lanes[ticket.class.index()];
        if lane.waiting.is_empty() {
            if lane.ops == 0 {
                lane.paid = lane.paid.max(queue.present);
            }
            if queue.may_start(&ticket, now) {
                queue.start(&ticket);
                return Some(op);
            }
            queue.note_pause(&ticket, now);
        }
        let lane = &mut queue.lanes[ticket.class.index()];
        lane.counts.delayed += 1;
        lane.waiting.push_back((token, op, ticket.waiting()));
        queue.waiting += 1;
        if ticket.kind == Kind::Bulk {
            queue.bulk.note_wait();
        }
        None
    }

    /// An operation ended; true = others of its disk wait.
    pub(crate) fn release(&mut self, ticket: Ticket, now: Instant) -> bool {
        let Some(queue) = self.queues.get_mut(usize::from(ticket.disk.0)) else { return false };
        let lane = &mut queue.lanes[ticket.class.index()];
        lane.ops -= 1;
        lane.counts.took += now - ticket.began;
        lane.bytes -= u64::from(ticket.cost);
        if ticket.class != Class::Produce {
            queue.shared_bytes -= u64::from(ticket.cost);
        }
        match ticket.kind {
            Kind::Bulk => queue.bulk.end(u64::from(ticket.cost), ticket.began, now),
            Kind::Produced { small, synced } => {
                queue.producing -= 1;
                if small {
                    queue.bulk.note_write(synced, ticket.began, now);
                }
            }
            Kind::Long | Kind::Other => {}
        }
        queue.waiting > 0
    }

    /// Whether operations wait for nothing but time.
    pub(crate) fn is_paused(&self) -> bool {
        self.resumes().is_some()
    }

    /// When operations that wait may start though nothing ends before; perhaps that is past
    /// already.
    pub(crate) fn resumes(&self) -> Option<Instant> {
        let waiting = self.queues.iter().filter(|queue| queue.waiting > 0);
        waiting.filter_map(|queue| queue.paused_until).min()
    }

    /// An operation that waited and may start now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Token, Op, Ticket)> {
        self.queues.iter_mut().filter(|queue| queue.waiting > 0).find_map(|q| q.next(now))
    }

    /// Everything that waits, in no queue any more: the shard ends.
    pub(crate) fn open_up(&mut self) -> Vec<(Token, Op)> {
        let mut all = Vec::new();
        for queue in &mut self.queues {
            for class in Class::ALL {
                let waiting = std::mem::take(&mut queue.lanes[class.index()].waiting);
                for (token, op, ticket) in waiting {
                    queue.start(&ticket);
                    all.push((token, op));
                }
            }
            queue.waiting = 0;
        }
        all
    }

    /// Each disk's device number (`None`: the shared queue of names) and its window for bulk data.
    pub(crate) fn windows(&self) -> Vec<(Option<u64>, u64)> {
        self.queues.iter().map(|queue| (queue.device, queue.bulk.bytes())).collect()
    }

    /// Each disk's device number (`None`: the shared queue of names) and its lanes' counts.
    pub(crate) fn counts(&self) -> Vec<(Option<u64>, [LaneCounts; CLASSES])> {
        let lanes = |queue: &DiskQueue| {
            Class::ALL.map(|class| {
                let lane = &queue.lanes[class.index()];
                LaneCounts {
                    waiting: lane.waiting.len() as u64,
                    in_flight: u64::from(lane.ops),
                    ..lane.counts
                }
            })
        };
        self.queues.iter().map(|queue| (queue.device, lanes(queue))).collect()
    }
}

impl DiskQueue {
    fn may_start(&self, ticket: &Ticket, now: Instant) -> bool {
        let (class, cost) = (ticket.class, u64::from(ticket.cost));
        if class == Class::Produce {
            return self.lanes[class.index()].ops < limits(class, true).ops;
        }
        let beside_producers =
            self.producing > 0 || self.last_produced.is_some_and(|last| now - last < QUIET_AFTER);
        if beside_producers && ticket.kind == Kind::Bulk {
            let first = self.first_bulk().filter(|first| first.class != class);
            let waits_too = first.is_some_and(|f| !self.bulk.admits(u64::from(f.cost), now));
            if waits_too || !self.bulk.admits(cost, now) {
                return false;
            }
        }
        let lane = &self.lanes[class.index()];
        let limits = limits(class, beside_producers);
        lane.ops == 0
            || lane.ops < limits.ops
                && lane.bytes + cost <= limits.bytes
                && self.shared_bytes + cost <= TOGETHER[usize::from(beside_producers)]
    }

    /// What bulk data goes next of that which waits: nothing smaller may for ever slip past it.
    fn first_bulk(&self) -> Option<&Ticket> {
        let fronts = [Class::Backfill, Class::Background].into_iter().filter_map(|class| {
            let lane = &self.lanes[class.index()];
            let (_, _, ticket) = lane.waiting.front().filter(|(_, _, t)| t.kind == Kind::Bulk)?;
            Some((lane.paid, ticket))
        });
        fronts.min_by_key(|(paid, _)| *paid).map(|(_, ticket)| ticket)
    }

    /// That an operation at the front of its lane was refused.
    fn note_pause(&mut self, ticket: &Ticket, now: Instant) {
        if ticket.kind == Kind::Bulk {
            let earlier = self.paused_until;
            self.paused_until = earlier.into_iter().chain(self.bulk.resumes(now)).min();
        }
    }

    fn start(&mut self, ticket: &Ticket) {
        let (class, cost) = (ticket.class, u64::from(ticket.cost));
        let lane = &mut self.lanes[class.index()];
        self.present = self.present.max(lane.paid);
        lane.paid = lane.paid.saturating_add(class.weighted(cost));
        lane.ops += 1;
        lane.bytes += cost;
        lane.counts.ops += 1;
        lane.counts.bytes += cost;
        if class != Class::Produce {
            self.shared_bytes += cost;
        }
        match ticket.kind {
            Kind::Bulk => self.bulk.begin(cost),
            Kind::Produced { .. } => self.producing += 1,
            Kind::Long | Kind::Other => {}
        }
    }

    fn next(&mut self, now: Instant) -> Option<(Token, Op, Ticket)> {
        let can = |class: &Class| {
            let first = self.lanes[class.index()].waiting.front();
            first.is_some_and(|(_, _, ticket)| self.may_start(ticket, now))
        };
        let chosen = Class::ALL.into_iter().filter(can).min_by_key(|c| self.lanes[c.index()].paid);
        let Some(class) = chosen else {
            // Everything at the front was refused now.
            self.paused_until = self.first_bulk().and_then(|_| self.bulk.resumes(now));
            return None;
        };
        let (token, op, ticket) = self.lanes[class.index()].waiting.pop_front()?;
        self.waiting -= 1;
        let ticket = ticket.begun(now);
        self.start(&ticket);
        if self.waiting > 0 {
            self.bulk.note_wait();
        }
        Some((token, op, ticket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1 << 40) + Duration::from_millis(millis)
    }

    fn ticket(class: Class, kind: Kind, began: Instant) -> Ticket {
        Ticket { disk: DiskId::default(), class, cost: 4 << 20, kind, began, waits: false }
    }

    /// The shard may look again only after the pause is over: it must still be told.
    #[test]
    fn a_pause_that_ended_unseen_is_not_forgotten() {
        let mut queues = DiskQueues::default();
        let op = || Op::SyncDisk { path: OpPath::new(Path::new("/")).unwrap(), watch: None };
        let write = ticket(Class::Produce, Kind::Produced { small: true, synced: false }, at(0));
        assert!(queues.admit(write, Token::new(0), op(), at(0)).is_some());
        let bulk = ticket(Class::Backfill, Kind::Bulk, at(0));
        assert!(queues.admit(bulk, Token::new(1), op(), at(0)).is_some());
        assert!(queues.admit(bulk, Token::new(2), op(), at(0)).is_none());
        assert_eq!(queues.resumes(), None, "it waits for the other one");
        assert!(queues.release(bulk, at(10)));
        assert!(queues.next(at(10)).is_none(), "larger than the window: there is a pause");
        let resumes = queues.resumes().unwrap();
        assert!(resumes > at(10));
        assert!(queues.is_paused());
        // Time goes on without a look at what waits; the answer stays, whatever comes meanwhile.
        let later = resumes + Duration::from_micros(1);
        assert!(queues.admit(bulk, Token::new(3), op(), later).is_none());
        assert_eq!(queues.resumes(), Some(resumes));
        assert!(queues.next(later).is_some());
        assert!(queues.next(later).is_none());
        assert!(!queues.is_paused(), "they wait for the one that runs");
    }

    #[test]
    fn a_large_operation_is_not_passed_by_small_ones_for_ever() {
        let mut queues = DiskQueues::default();
        let op = || Op::SyncDisk { path: OpPath::new(Path::new("/")).unwrap(), watch: None };
        let write = ticket(Class::Produce, Kind::Produced { small: true, synced: false }, at(0));
        assert!(queues.admit(write, Token::new(0), op(), at(0)).is_some());
        let small = Ticket { cost: 128 << 10, ..ticket(Class::Backfill, Kind::Bulk, at(0)) };
        let mut running: VecDeque<Ticket> = VecDeque::new();
        for token in 1..10 {
            let admitted = queues.admit(small, Token::new(token), op(), at(0)).is_some();
            running.extend(admitted.then_some(small));
        }
        let large = Ticket { cost: 1 << 20, ..ticket(Class::Background, Kind::Bulk, at(0)) };
        assert!(queues.admit(large, Token::new(10), op(), at(0)).is_none());
        for round in 1..1000 {
            let now = at(round);
            queues.release(running.pop_front().unwrap(), now);
            // A reader comes back at once with its next piece.
            let token = Token::new(10 + round as usize);
            running.extend(queues.admit(small, token, op(), now).map(|_| small));
            while let Some((_, _, ticket)) = queues.next(now) {
                if ticket.class == Class::Background {
                    return;
                }
                running.push_back(ticket);
            }
        }
        panic!("the large one never went");
    }

    /// A broker looks at its disks all the time, in the class that is nobody's in particular.
    #[test]
    fn who_only_looks_at_a_disk_does_not_hold_up_bulk_data() {
        let mut queues = DiskQueues::default();
        let op = || Op::SyncDisk { path: OpPath::new(Path::new("/")).unwrap(), watch: None };
        let look = Ticket { cost: PLAIN_COST, ..ticket(Class::Produce, Kind::Other, at(0)) };
        let piece = Ticket { cost: 256 << 10, ..ticket(Class::Backfill, Kind::Bulk, at(0)) };
        assert!(queues.admit(look, Token::new(0), op(), at(0)).is_some());
        for token in 1..9 {
            assert!(queues.admit(piece, Token::new(token), op(), at(1)).is_some(), "{token}");
        }
        let write = ticket(Class::Produce, Kind::Produced { small: false, synced: false }, at(1));
        assert!(queues.admit(write, Token::new(9), op(), at(1)).is_some());
        assert!(queues.admit(piece, Token::new(10), op(), at(1)).is_none());
        queues.release(write, at(2));
        assert!(queues.next(at(2)).is_none(), "there may be more to come");
        assert!(queues.next(at(1500)).is_some());
    }
}
