//! One coordinator at work: its log, those who wait for answers, and its deadlines.
//!
//! Owns: the order of a coordinator's decisions. Each is appended in the turn that made it; its
//! answers leave when everything appended up to then is as durable as a produce with acks=all would
//! be. A decision that the log has no memory for waits in the queue, and all later ones behind it.
//!
//! ```text
//! request ──► decide ──► append ──► queue: [end, answers] ──► acknowledged ──► answers leave
//!                           │ no memory: [batch, answers], appended when there is room
//!                           └ failed: the coordinator is dropped, all who wait are told
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use ahash::AHashMap;
use coord::{CoordError, Producer, Token};
use log::{AppendError, LogState, TransactionMarker};
use reactor::sync::{Notified, Notify, OneshotReceiver, OneshotSender, oneshot};
use reactor::{Either, race};
use tracing::{error, info, warn};
use wire::ErrorCode;
use wire::records::{BatchBuilder, BatchError, BatchView};

use super::errands::ErrandOut;
use super::load::{self, Loaded};
use super::{Decided, Machine};
use crate::errors;
use crate::partition::Partition;
use crate::shard::Shard;

/// Decisions that may wait for memory; then requests wait.
const HELD_MAX: usize = 256;
/// A coordinator that was dropped although its log is whole is loaded again after this time.
const RELOAD_AFTER: Duration = Duration::from_secs(1);
/// One whose log could not be read is loaded again after this time: what failed may have been one
/// read.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// A coordinator without space looks for some again after this time.
const LOOK_AGAIN_MS: i64 = 500;
/// A decision that may be cut goes into batches of this size: each of them soon has memory.
const CUT_BATCH_BYTES: usize = 1 << 20;
/// What a record takes beside its key and value, about.
const RECORD_FRAME_BYTES: usize = 32;
/// What a batch of a transaction has in place of a sequence number.
const NO_SEQUENCE: i32 = -1;

/// An answer, or why there is none.
pub(crate) type Answer<R> = Result<R, ErrorCode>;

/// What became of a request.
pub(crate) enum HandedIn<R> {
    Now(Answer<R>),
    Later(OneshotReceiver<Answer<R>>),
    /// To be handed in again.
    Full(Notified),
}

/// What became of a marker.
pub(crate) enum Ended {
    /// The log ends there now.
    Appended(i64),
    /// Decisions before it are not appended yet.
    Waits(Notified),
    /// The log has no memory for it now.
    NoMemory,
    Refused(ErrorCode),
}

pub(crate) struct Seat<M: Machine> {
    partition: Rc<Partition>,
    phase: RefCell<Phase<M>>,
    /// Wakes the seat's task.
    kick: Notify,
    /// The queue has become shorter.
    room: Notify,
}

enum Phase<M: Machine> {
    Loading,
    Active(Box<Active<M>>),
    /// There is none; everybody is told this.
    Gone(ErrorCode),
}

struct Active<M: Machine> {
    machine: M,
    waiting: AHashMap<Token, OneshotSender<Answer<M::Reply>>>,
    next_token: u64,
    queue: VecDeque<Step<M>>,
    /// How many at the end of the queue wait for memory.
    held: usize,
    /// What was appended ends here.
    end: i64,
    /// The deadline that the seat's task sleeps for.
    armed: Option<i64>,
}

/// A decision whose answers have not left.
struct Step<M: Machine> {
    /// Not appended yet.
    batch: Option<Vec<u8>>,
    /// Answers and errands leave when everything below is acknowledged.
    end: i64,
    replies: Vec<(Token, M::Reply)>,
    errands: Vec<M::Errand>,
}

/// A decision that could not be appended.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Record(#[from] CoordError),
    #[error("its batch cannot be built: {0}")]
    Batch(#[from] BatchError),
    #[error("its batch of {bytes} bytes is larger than {most}")]
    TooLarge { bytes: usize, most: usize },
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Failed {
    fn code(&self) -> ErrorCode {
        match self {
            Failed::Record(_) | Failed::Batch(_) => ErrorCode::UnknownServerError,
            Failed::TooLarge { .. } => errors::of_coordinator(ErrorCode::RecordListTooLarge),
            Failed::Append(error) => errors::of_coordinator(errors::of_append(error)),
        }
    }
}

/// What the seat's task waits for.
enum Todo {
    Over,
    More,
    Wait { acknowledged: Option<i64>, room: bool, deadline_ms: Option<i64> },
}

impl<M: Machine> Seat<M> {
    /// Begins to load the coordinator of a partition that is open here.
    pub fn take(shard: &Rc<Shard>, partition: Rc<Partition>) -> Rc<Self> {
        let seat = Rc::new(Seat {
            partition,
            phase: RefCell::new(Phase::Loading),
            kick: Notify::new(),
            room: Notify::new(),
        });
        reactor::spawn(run(shard.clone(), seat.clone())).detach();
        seat
    }

    /// Whether this is the coordinator of just that partition, and at work or on the way to it.
    pub fn is_of(&self, partition: &Rc<Partition>) -> bool {
        let is_gone = matches!(*self.phase.borrow(), Phase::Gone(_));
        Rc::ptr_eq(&self.partition, partition) && !is_gone
    }

    pub fn partition_index(&self) -> i32 {
        self.partition.index
    }

    /// Whether there is no space for what the coordinator decides: who asks it for a decision would
    /// lose it to everybody.
    pub fn is_out_of_space(&self, shard: &Shard) -> bool {
        shard.dirs.is_exhausted(self.partition.dir_number)
    }

    /// Hands a request to the coordinator: `decide` asks it, under the token that its answer will
    /// have.
    pub fn hand_in(
        &self,
        shard: &Shard,
        decide: impl FnOnce(&mut M, Token, i64) -> Decided<M>,
    ) -> HandedIn<M::Reply> {
        let mut phase = self.phase.borrow_mut();
        let active = match &mut *phase {
            Phase::Active(active) => active,
            Phase::Loading => return HandedIn::Now(Err(ErrorCode::CoordinatorLoadInProgress)),
            Phase::Gone(code) => return HandedIn::Now(Err(*code)),
        };
        if active.held >= HELD_MAX {
            return HandedIn::Full(self.room.notified());
        }
        let token = Token(active.next_token);
        active.next_token += 1;
        let now_ms = reactor::wall_clock_ms();
        let mut decided = decide(&mut active.machine, token, M::clock_ms(shard));
        let now = self.answered_now(active, token, &mut decided);
        let later = now.is_none().then(|| {
            let (sender, receiver) = oneshot();
            active.waiting.insert(token, sender);
            receiver
        });
        if let Err(failed) = self.take_in(shard, active, decided, now_ms) {
            self.fail(&mut phase, &failed, Some(token));
        }
        drop(phase);
        match (now, later) {
            (Some(reply), _) => HandedIn::Now(Ok(reply)),
            (None, Some(receiver)) => HandedIn::Later(receiver),
            (None, None) => HandedIn::Now(Err(ErrorCode::UnknownServerError)),
        }
    }

    /// The answer, if it is there and may leave at once.
    fn answered_now(
        &self,
        active: &Active<M>,
        token: Token,
        decided: &mut Decided<M>,
    ) -> Option<M::Reply> {
        let may_leave = decided.records.is_empty()
            && active.queue.is_empty()
            && active.end <= self.partition.log.visible_end_offset();
        let at = decided.replies.iter().position(|(answered, _)| *answered == token)?;
        may_leave.then(|| decided.replies.swap_remove(at).1)
    }

    /// Appends a decision's records and queues its answers and errands.
    fn take_in(
        &self,
        shard: &Shard,
        active: &mut Active<M>,
        decided: Decided<M>,
        now_ms: i64,
    ) -> Result<(), Failed> {
        let mut batches = batches_of(&decided, batch_bytes_max::<M>(shard), now_ms)?;
        let last = batches.pop();
        let Decided { replies, errands, .. } = decided;
        for batch in batches {
            let step =
                Step { batch: Some(batch), end: 0, replies: Vec::new(), errands: Vec::new() };
            self.enqueue(active, step, now_ms)?;
        }
        self.enqueue(active, Step { batch: last, end: 0, replies, errands }, now_ms)?;
        let deadline_ms = active.machine.next_deadline();
        let is_sooner = deadline_ms.is_some_and(|it| active.armed.is_none_or(|at| it < at));
        if is_sooner || active.queue.len() == 1 {
            self.kick.notify_all();
        }
        Ok(())
    }

    /// Appends a step's batch, or lets it wait for memory; what comes of it waits behind it.
    fn enqueue(
        &self,
        active: &mut Active<M>,
        mut step: Step<M>,
        now_ms: i64,
    ) -> Result<(), Failed> {
        if active.held == 0
            && let Some(bytes) = &step.batch
            && let Some(end) = self.append(bytes, now_ms)?
        {
            active.end = end;
            step.batch = None;
        }
        if active.held > 0 || step.batch.is_some() {
            active.held += 1;
        }
        step.end = active.end;
        if active.held > 0 || !step.replies.is_empty() || !step.errands.is_empty() {
            active.queue.push_back(step);
        }
        Ok(())
    }

    /// Returns where the log ends then; `None` if it has no memory for it now.
    fn append(&self, bytes: &[u8], now_ms: i64) -> Result<Option<i64>, Failed> {
        let batch = BatchView::parse(bytes)?;
        match self.partition.log.append(&batch, self.partition.leader_epoch(), now_ms) {
            Ok(done) => {
                let header = batch.header();
                let records = header.record_count;
                self.partition.traffic.note_produced(header.size_in_bytes(), records);
                Ok(Some(done.last_offset + 1))
            }
            Err(AppendError::Full) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends the marker that ends a producer's transaction: what it committed for groups counts
    /// from now on, or is gone.
    pub fn end_transaction(&self, marker: TransactionMarker) -> Ended {
        let mut phase = self.phase.borrow_mut();
        let active = match &mut *phase {
            Phase::Active(active) => active,
            Phase::Loading => return Ended::Refused(ErrorCode::CoordinatorLoadInProgress),
            Phase::Gone(code) => return Ended::Refused(*code),
        };
        if active.held > 0 {
            return Ended::Waits(self.room.notified());
        }
        let (epoch, now_ms) = (self.partition.leader_epoch(), reactor::wall_clock_ms());
        match self.partition.log.append_marker(marker, epoch, now_ms) {
            Ok(done) => {
                active.machine.replay_marker(marker.producer_id, marker.end.committed);
                active.end = done.last_offset + 1;
                Ended::Appended(active.end)
            }
            Err(AppendError::Full) => Ended::NoMemory,
            Err(error) => Ended::Refused(errors::of_append(&error)),
        }
    }

    /// Has the coordinator decide by itself, if it is at work.
    pub fn decide(&self, shard: &Shard, decide: impl FnOnce(&mut M, i64) -> Decided<M>) {
        let mut phase = self.phase.borrow_mut();
        let Phase::Active(active) = &mut *phase else { return };
        let now_ms = reactor::wall_clock_ms();
        let decided = decide(&mut active.machine, M::clock_ms(shard));
        if let Err(failed) = self.take_in(shard, active, decided, now_ms) {
            self.fail(&mut phase, &failed, None);
        }
    }

    /// Changes the coordinator's settings, if it is at work.
    pub fn set(&self, set: impl FnOnce(&mut M)) {
        if let Phase::Active(active) = &mut *self.phase.borrow_mut() {
            set(&mut active.machine);
        }
    }

    /// Looks at the coordinator, if it is at work.
    pub fn look<T>(&self, look: impl FnOnce(&M) -> T) -> Option<T> {
        match &*self.phase.borrow() {
            Phase::Active(active) => Some(look(&active.machine)),
            Phase::Loading | Phase::Gone(_) => None,
        }
    }

    pub fn is_at_work(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Active(_))
    }

    pub fn is_loading(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Loading)
    }

    /// The partition is not here any more.
    pub fn leave(&self, code: ErrorCode) {
        self.leave_with(&mut self.phase.borrow_mut(), code, None);
    }

    /// Drops the coordinator: it holds what the log does not. `culprit`: the request that brought
    /// this about, which is told the reason; others may come again.
    fn fail(&self, phase: &mut Phase<M>, failed: &Failed, culprit: Option<Token>) {
        let (topic, index) = (&self.partition.topic, self.partition.index);
        match failed {
            // At a stop, a move, a deletion: its log ends with what it had accepted.
            Failed::Append(AppendError::Closed(_)) => {
                info!(%topic, partition = index, "the {} is dropped: {failed}", M::WHAT);
            }
            _ => error!(%topic, partition = index, "the {} is dropped: {failed}", M::WHAT),
        }
        let is_whole = matches!(self.partition.log.state(), LogState::Online);
        let code = match is_whole {
            true => ErrorCode::CoordinatorLoadInProgress,
            false => failed.code(),
        };
        self.leave_with(phase, code, culprit.map(|token| (token, failed.code())));
    }

    fn leave_with(
        &self,
        phase: &mut Phase<M>,
        code: ErrorCode,
        culprit: Option<(Token, ErrorCode)>,
    ) {
        if let Phase::Active(active) = std::mem::replace(phase, Phase::Gone(code)) {
            for (token, sender) in active.waiting {
                let own = culprit.filter(|(guilty, _)| *guilty == token);
                // The requester may have left.
                let _ = sender.send(Err(own.map_or(code, |(_, reason)| reason)));
            }
        }
        self.kick.notify_all();
        self.room.notify_all();
    }

    /// Does what can be done without waiting.
    fn work(self: &Rc<Self>, shard: &Rc<Shard>) -> Todo {
        let mut phase = self.phase.borrow_mut();
        let Phase::Active(active) = &mut *phase else { return Todo::Over };
        let now_ms = reactor::wall_clock_ms();
        let mut errands = Vec::new();
        let todo = match self.work_with(shard, active, &mut errands, now_ms) {
            Ok(todo) => todo,
            Err(failed) => {
                self.fail(&mut phase, &failed, None);
                Todo::Over
            }
        };
        drop(phase);
        for errand in errands {
            let out = ErrandOut::<M>::begin(shard, &self.partition);
            let run = M::run(shard.clone(), self.clone(), errand);
            reactor::spawn(async move {
                run.await;
                drop(out);
            })
            .detach();
        }
        todo
    }

    fn work_with(
        &self,
        shard: &Shard,
        active: &mut Active<M>,
        errands: &mut Vec<M::Errand>,
        now_ms: i64,
    ) -> Result<Todo, Failed> {
        self.append_held(active, now_ms)?;
        self.send_acknowledged(active, errands);
        let clock_ms = M::clock_ms(shard);
        let is_due = |due_ms: &i64| *due_ms <= clock_ms;
        let has_space = !self.is_out_of_space(shard);
        let due = active.machine.next_deadline();
        if has_space && active.held == 0 && due.as_ref().is_some_and(is_due) {
            let decided = active.machine.on_time(shard, clock_ms);
            self.take_in(shard, active, decided, now_ms)?;
            return Ok(Todo::More);
        }
        // Without space what falls due waits.
        let later =
            |due_ms: i64| if has_space { due_ms } else { due_ms.max(clock_ms + LOOK_AGAIN_MS) };
        let deadline_ms = due.filter(|_| active.held == 0).map(later);
        active.armed = deadline_ms;
        let appended = active.queue.front().filter(|step| step.batch.is_none());
        Ok(Todo::Wait {
            acknowledged: appended.map(|step| step.end),
            room: active.held > 0,
            deadline_ms,
        })
    }

    fn append_held(&self, active: &mut Active<M>, now_ms: i64) -> Result<(), Failed> {
        while active.held > 0 {
            let at = active.queue.len() - active.held;
            let Some(step) = active.queue.get_mut(at) else { break };
            if let Some(bytes) = &step.batch {
                let Some(end) = self.append(bytes, now_ms)? else { break };
                active.end = end;
            }
            step.batch = None;
            step.end = active.end;
            active.held -= 1;
            self.room.notify_all();
        }
        Ok(())
    }

    fn send_acknowledged(&self, active: &mut Active<M>, errands: &mut Vec<M::Errand>) {
        let visible_end = self.partition.log.visible_end_offset();
        while active.queue.len() > active.held
            && active.queue.front().is_some_and(|step| step.end <= visible_end)
        {
            let Some(step) = active.queue.pop_front() else { break };
            errands.extend(step.errands);
            for (token, reply) in step.replies {
                if let Some(sender) = active.waiting.remove(&token) {
                    // The requester may have left.
                    let _ = sender.send(Ok(reply));
                }
            }
        }
    }

    async fn wait(&self, kicked: Notified, acknowledged: Option<i64>, room: bool, ms: Option<i64>) {
        let log = &self.partition.log;
        let in_log = async {
            match acknowledged {
                Some(end) => log.acknowledged(end).await,
                None => std::future::pending().await,
            }
        };
        let memory = async {
            match room {
                true => log.room().await,
                false => std::future::pending().await,
            }
        };
        let time = async {
            match ms {
                Some(ms) => reactor::sleep(Duration::from_millis(ms.max(0).unsigned_abs())).await,
                None => std::future::pending().await,
            }
        };
        match race(race(kicked, in_log), race(memory, time)).await {
            Either::Left(Either::Right(Err(error))) => {
                warn!(
                    topic = %self.partition.topic, partition = self.partition.index,
                    "the {} is dropped: {error}", M::WHAT
                );
                self.leave(errors::of_coordinator(errors::of_log(&error)));
            }
            Either::Left(_) | Either::Right(_) => {}
        }
    }
}

/// What a coordinator can append in one batch: more could not be read again, by its successor or by
/// compaction, or has no room in a segment.
pub(crate) fn batch_bytes_max<M: Machine>(shard: &Shard) -> usize {
    let segment_bytes = shard.topic_config(M::TOPIC).segment_bytes as usize;
    shard.partition_limits().decompressed_bytes_max.min(segment_bytes)
}

/// The batches of a decision: one, unless it is large and may be cut.
fn batches_of<M: Machine>(
    decided: &Decided<M>,
    most: usize,
    now_ms: i64,
) -> Result<Vec<Vec<u8>>, Failed> {
    let mut batches = Vec::new();
    let mut open = OpenBatch::begin(decided.producer);
    let mut begin = 0;
    for end in decided.cuts.iter().copied().chain([decided.records.len()]) {
        let together = decided.records.get(begin..end).unwrap_or_default();
        begin = end;
        let together: Vec<_> = together.iter().map(M::to_bytes).collect::<Result<_, _>>()?;
        let size = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            key.len() + value.as_ref().map_or(0, Vec::len) + RECORD_FRAME_BYTES
        };
        let bytes: usize = together.iter().map(size).sum();
        if open.bytes > 0 && open.bytes + bytes > most.min(CUT_BATCH_BYTES) {
            let full = std::mem::replace(&mut open, OpenBatch::begin(decided.producer));
            batches.push(full.build(most)?);
        }
        open.bytes += bytes;
        for (key, value) in &together {
            open.builder.append(now_ms, Some(key), value.as_deref());
        }
    }
    if open.bytes > 0 {
        batches.push(open.build(most)?);
    }
    Ok(batches)
}

struct OpenBatch {
    builder: BatchBuilder,
    /// About as many as it will have; 0 if it is empty.
    bytes: usize,
}

impl OpenBatch {
    fn begin(producer: Option<Producer>) -> Self {
        let builder = BatchBuilder::new();
        let builder = match producer {
            Some(it) => builder.producer(it.id, it.epoch, NO_SEQUENCE).transactional(true),
            None => builder,
        };
        OpenBatch { builder, bytes: 0 }
    }

    fn build(self, most: usize) -> Result<Vec<u8>, Failed> {
        let bytes = self.builder.build()?;
        match bytes.len() {
            len if len > most => Err(Failed::TooLarge { bytes: len, most }),
            _ => Ok(bytes),
        }
    }
}

/// The life of a coordinator.
async fn run<M: Machine>(shard: Rc<Shard>, seat: Rc<Seat<M>>) {
    let again_after = match load(&shard, &seat).await {
        true => {
            work(&shard, &seat).await;
            RELOAD_AFTER
        }
        false => LOAD_AGAIN_AFTER,
    };
    if shard.partitions.serves(&seat.partition)
        && matches!(seat.partition.log.state(), LogState::Online)
    {
        reactor::sleep(again_after).await;
        shard.partitions.note_internal_change();
    }
}

/// Until the coordinator is gone.
async fn work<M: Machine>(shard: &Rc<Shard>, seat: &Rc<Seat<M>>) {
    loop {
        let kicked = seat.kick.notified();
        match seat.work(shard) {
            Todo::Over => return,
            Todo::More => reactor::yield_now().await,
            Todo::Wait { acknowledged, room, deadline_ms } => {
                let ms = deadline_ms.map(|due_ms| due_ms - M::clock_ms(shard));
                seat.wait(kicked, acknowledged, room, ms).await;
            }
        }
    }
}

/// Loads the coordinator; returns whether it is at work then.
async fn load<M: Machine>(shard: &Rc<Shard>, seat: &Rc<Seat<M>>) -> bool {
    let _permit = M::seats(shard).loading.acquire(1).await;
    let partition = &seat.partition;
    let (topic, index) = (&partition.topic, partition.index);
    let most = shard.partition_limits().decompressed_bytes_max;
    let machine = M::begin(shard, partition);
    let loading = load::load(partition, machine, M::load_piece_bytes(shard), most);
    let Loaded { machine, records, took } = match loading.await {
        Ok(loaded) => loaded,
        Err(error) => {
            error!(%topic, partition = index, "its {} cannot be loaded: {error}", M::WHAT);
            seat.leave(ErrorCode::NotCoordinator);
            return false;
        }
    };
    M::seats(shard).counted.note_load(records, took);
    if records > 0 {
        info!(%topic, partition = index, records, ?took, "the {} is loaded", M::WHAT);
    }
    seat.begin(shard, machine)
}

impl<M: Machine> Seat<M> {
    /// Puts a coordinator to work that has read its log.
    fn begin(&self, shard: &Shard, mut machine: M) -> bool {
        let mut phase = self.phase.borrow_mut();
        if !matches!(*phase, Phase::Loading) {
            return false;
        }
        let now_ms = reactor::wall_clock_ms();
        let decided = machine.loaded(shard, &self.partition, M::clock_ms(shard));
        let mut active = Box::new(Active {
            machine,
            waiting: AHashMap::new(),
            next_token: 0,
            queue: VecDeque::new(),
            held: 0,
            end: self.partition.log.log_end_offset(),
            armed: None,
        });
        let taken = self.take_in(shard, &mut active, decided, now_ms);
        *phase = Phase::Active(active);
        if let Err(failed) = taken {
            self.fail(&mut phase, &failed, None);
        }
        true
    }
}
