//! Coordinators on this shard, of whichever kind: a pure machine of `coord` for each partition of
//! an internal topic that is led and open here.
//!
//! Owns: which partitions have one, and finding the one of a key. A coordinator comes with its
//! partition (a task compares whenever one comes or goes), is loaded from the log in the
//! background, and goes with the partition. It is not begun while a former one of the partition has
//! something under way (`errands`). What one does once it is there is `seat`'s matter; what it is,
//! its kind's: consumer groups (`groups`), transactions (`transactions`).
//!
//! ```text
//! partition opens ──► loading (14) ──► active ──► gone with the partition (16)
//!                      ▲   │ ▲            │ an append failed, the log is whole
//!  after a minute (16) │   │ └────────────┘ after a second (14), and its errands
//!                      └───┘ could not be read
//! ```

mod errands;
mod load;
mod seat;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use coord::{CoordError, Producer, Token};
use reactor::sync::Semaphore;
use wire::{ErrorCode, hash};

use errands::Errands;
pub(crate) use seat::{Answer, Ended, HandedIn, Seat, batch_bytes_max};

use crate::partition::Partition;
use crate::shard::Shard;

/// Coordinators of one kind and shard that read their logs at the same time.
const LOADING_MAX: usize = 2;

/// A kind of coordinator.
pub(crate) trait Machine: Sized + 'static {
    /// As the log of the broker calls it.
    const WHAT: &'static str;
    /// The internal topic that holds its records.
    const TOPIC: &'static str;
    type Record;
    type Reply: 'static;
    /// What it has others do, once the decision cannot be forgotten any more.
    type Errand: 'static;

    fn seats(shard: &Shard) -> &Seats<Self>;

    /// One that has read nothing yet.
    fn begin(shard: &Shard, partition: &Partition) -> Self;

    /// The clock that its deadlines go by, in milliseconds.
    fn clock_ms(shard: &Shard) -> i64;

    /// Bytes of the log to read at a time when it is loaded.
    fn load_piece_bytes(shard: &Shard) -> usize;

    /// Reads one record, of this producer if it was written in a transaction.
    fn replay(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        producer: Option<i64>,
    ) -> Result<(), CoordError>;

    /// A transaction of this producer ends here.
    fn replay_marker(&mut self, producer_id: i64, committed: bool);

    /// The log has been read. Settings may have changed meanwhile.
    fn loaded(&mut self, shard: &Shard, partition: &Partition, now_ms: i64) -> Decided<Self>;

    fn next_deadline(&mut self) -> Option<i64>;

    fn on_time(&mut self, shard: &Shard, now_ms: i64) -> Decided<Self>;

    /// Key and value as they are appended.
    fn to_bytes(record: &Self::Record) -> Result<(Vec<u8>, Option<Vec<u8>>), CoordError>;

    /// Does it. Until this ends, the coordinator gets no successor.
    fn run(
        shard: Rc<Shard>,
        seat: Rc<Seat<Self>>,
        errand: Self::Errand,
    ) -> impl Future<Output = ()> + 'static;
}

/// A decision: its records are part of the machine already, and appended as one batch, or as
/// several where it may be cut.
pub(crate) struct Decided<M: Machine> {
    pub records: Vec<M::Record>,
    /// Numbers of records, ascending, after which a batch may end.
    pub cuts: Vec<usize>,
    /// Whose transaction the records are part of.
    pub producer: Option<Producer>,
    pub replies: Vec<(Token, M::Reply)>,
    pub errands: Vec<M::Errand>,
}

/// The coordinators of one kind.
pub(crate) struct Seats<M: Machine> {
    /// By number of the partition.
    seats: RefCell<BTreeMap<i32, Rc<Seat<M>>>>,
    loading: Semaphore,
    errands: Errands,
    pub counted: Loads,
}

/// Loadings since the start.
#[derive(Default)]
pub(crate) struct Loads {
    pub count: Cell<u64>,
    pub records: Cell<u64>,
    pub took: Cell<Duration>,
}

impl Loads {
    fn note_load(&self, records: u64, took: Duration) {
        self.count.set(self.count.get().wrapping_add(1));
        self.records.set(self.records.get().wrapping_add(records));
        self.took.set(self.took.get().saturating_add(took));
    }
}

impl<M: Machine> Default for Seats<M> {
    fn default() -> Self {
        let loading = Semaphore::new(LOADING_MAX);
        let errands = Errands::default();
        Seats { seats: RefCell::default(), loading, errands, counted: Loads::default() }
    }
}

impl<M: Machine> Seats<M> {
    /// The coordinator of a key.
    ///
    /// # Errors
    /// `NOT_COORDINATOR` if another node leads its partition, `COORDINATOR_LOAD_IN_PROGRESS` if it
    /// is still to come.
    pub fn of_key(&self, shard: &Shard, key: &str) -> Result<Rc<Seat<M>>, ErrorCode> {
        let image = shard.image();
        let topic = image.topic_by_name(M::TOPIC).ok_or(ErrorCode::NotCoordinator)?;
        let index = partition_of(key, topic.partitions.len());
        if let Some(seat) = self.seats.borrow().get(&index) {
            return Ok(seat.clone());
        }
        let is_led_here = topic.partition(index).is_some_and(|p| p.leader.0 == shard.node_id());
        let is_coming = is_led_here && shard.partitions.is_coming(&(topic.id, index));
        Err(match is_coming {
            true => ErrorCode::CoordinatorLoadInProgress,
            false => ErrorCode::NotCoordinator,
        })
    }

    /// The coordinator of just this partition, if it is there.
    pub fn of_partition(&self, partition: &Rc<Partition>) -> Option<Rc<Seat<M>>> {
        let seat = self.seats.borrow().get(&partition.index).cloned();
        seat.filter(|seat| seat.is_of(partition))
    }

    /// Whether a partition that is led here is still to get its coordinator.
    pub fn some_are_coming(&self, shard: &Shard) -> bool {
        let image = shard.image();
        let Some(topic) = image.topic_by_name(M::TOPIC) else { return false };
        let seats = self.seats.borrow();
        (0i32..).zip(&topic.partitions).any(|(index, partition)| {
            partition.leader.0 == shard.node_id()
                && !seats.contains_key(&index)
                && shard.partitions.is_coming(&(topic.id, index))
        })
    }

    /// Whether every coordinator that this shard is to have has read its log and serves.
    pub fn all_are_at_work(&self, shard: &Shard) -> bool {
        let seats = self.seats.borrow();
        !self.some_are_coming(shard) && seats.values().all(|seat| seat.is_at_work())
    }

    pub fn all(&self) -> Vec<Rc<Seat<M>>> {
        self.seats.borrow().values().cloned().collect()
    }

    /// Hands a request to every coordinator. While some are still to come, that is the only answer;
    /// one that goes elsewhere meanwhile is left out.
    pub async fn ask_all(
        &self,
        shard: &Shard,
        hand_in: impl Fn(&Seat<M>) -> HandedIn<M::Reply>,
    ) -> Vec<Answer<M::Reply>> {
        if self.some_are_coming(shard) {
            return vec![Err(ErrorCode::CoordinatorLoadInProgress)];
        }
        let mut answers = Vec::new();
        for seat in self.all() {
            let answer = ask_one(&seat, &hand_in).await;
            if !matches!(answer, Err(ErrorCode::NotCoordinator)) {
                answers.push(answer);
            }
        }
        answers
    }
}

/// Hands a request to a coordinator, and waits for its answer.
pub(crate) async fn ask_one<M: Machine>(
    seat: &Seat<M>,
    hand_in: impl Fn(&Seat<M>) -> HandedIn<M::Reply>,
) -> Answer<M::Reply> {
    loop {
        match hand_in(seat) {
            HandedIn::Now(answer) => return answer,
            // A coordinator that goes answers first; one that is simply dropped has stopped.
            HandedIn::Later(receiver) => {
                return receiver.await.unwrap_or(Err(ErrorCode::NotCoordinator));
            }
            HandedIn::Full(room) => room.await,
        }
    }
}

/// The partition of an internal topic that a key belongs to.
pub(crate) fn partition_of(key: &str, partitions: usize) -> i32 {
    hash::coordinator_partition(key, i32::try_from(partitions).unwrap_or(i32::MAX))
}

/// Gives each open partition its coordinator, for as long as the shard runs.
pub(crate) fn start<M: Machine>(shard: &Rc<Shard>) {
    let shard = shard.clone();
    reactor::spawn(async move {
        while !shard.is_stopping() {
            let changed = shard.partitions.internal_changed();
            settle::<M>(&shard);
            changed.await;
        }
    })
    .detach();
}

/// Compares the coordinators that are there with the partitions that are open.
fn settle<M: Machine>(shard: &Rc<Shard>) {
    let open = open_partitions(shard, M::TOPIC);
    let Seats { seats, errands, .. } = M::seats(shard);
    let mut seats = seats.borrow_mut();
    seats.retain(|index, seat| {
        let stays = open.get(index).is_some_and(|partition| seat.is_of(partition));
        if !stays {
            seat.leave(ErrorCode::NotCoordinator);
        }
        stays
    });
    for (index, partition) in open {
        if !seats.contains_key(&index) && !errands.holds_up(&partition) {
            seats.insert(index, Seat::take(shard, partition));
        }
    }
}

fn open_partitions(shard: &Shard, topic: &str) -> BTreeMap<i32, Rc<Partition>> {
    let image = shard.image();
    let Some(topic) = image.topic_by_name(topic) else { return BTreeMap::new() };
    let id = topic.id;
    let indexes = (0i32..).take(topic.partitions.len());
    indexes.filter_map(|index| Some((index, shard.partitions.get(&(id, index))?))).collect()
}
