//! What one fetch reads: planned, read and accounted for in the order of its partitions.
//!
//! A round is planned in one go without awaiting: the visible ends are read, the plans made and, if
//! it has to wait, the listeners for the next change registered, so that nothing can slip in
//! between. Only then the reads are executed, on owned handles. How much a read of the disk brings is
//! known when it is done; until then its most counts. What came short of that is given to partitions
//! that were left out, so that one whose data does not come never keeps the others from theirs.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use log::{LogError, ReadPlan};
use reactor::{Class, with_class};
use wire::ErrorCode;

use crate::fetch_session::Wanted;
use crate::metrics::TopicTraffic;
use crate::shard::Shard;

/// What one answer reads from the disk, the first whole batch aside: a client that asks for more than
/// it takes must not fill the memory with it.
const COLD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Reads of the device that one fetch has on the way at a time.
const READS_AT_ONCE: usize = 16;

/// One partition of one round.
pub(super) struct Planned {
    pub error: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    pub diverging: Option<(i32, i64)>,
    pub leader: Option<(i32, i32)>,
    pub plan: Option<ReadPlan>,
    /// Where the bytes are counted that leave.
    pub traffic: Option<Rc<TopicTraffic>>,
    /// What may come at most.
    pub bytes: usize,
    /// There is data, but the limits had no room for it.
    pub is_left_out: bool,
}

impl Planned {
    fn failed(error: ErrorCode) -> Self {
        Planned {
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging: None,
            leader: None,
            plan: None,
            traffic: None,
            bytes: 0,
            is_left_out: false,
        }
    }

    fn is_cold(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| !plan.is_cached())
    }

    pub fn must_answer(&self) -> bool {
        self.error != ErrorCode::None || self.diverging.is_some()
    }
}

/// How much of an answer is spoken for.
#[derive(Clone, Copy, Default)]
struct Taken {
    bytes: usize,
    cold_bytes: usize,
}

impl Taken {
    fn add(&mut self, bytes: usize, is_cold: bool) {
        self.bytes += bytes;
        if is_cold {
            self.cold_bytes += bytes;
        }
    }
}

/// What bounds one answer.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub bytes_max: usize,
    pub bytes_min: usize,
    pub read_committed: bool,
}

/// One fetch: who is asked for what, within which limits.
pub(super) struct Round<'a> {
    pub shard: &'a Rc<Shard>,
    pub wanted: &'a [Wanted],
    pub limits: Limits,
}

impl Round<'_> {
    /// Reads what is worth answering, waiting for it up to `wait`.
    pub async fn read(&self, wait: Duration) -> (Vec<Planned>, Vec<Vec<Bytes>>) {
        let deadline = reactor::now() + wait;
        let mut listening = None;
        loop {
            let mut planned = self.plan();
            let bytes: usize = planned.iter().map(|p| p.bytes).sum();
            let must_answer = planned.iter().any(Planned::must_answer) || self.wanted.is_empty();
            let is_late = reactor::now() >= deadline;
            let changed = if must_answer || is_late || bytes >= self.limits.bytes_min {
                let records = self.read_planned(&mut planned).await;
                let nothing = records.iter().all(Vec::is_empty);
                let failed = planned.iter().any(Planned::must_answer);
                if must_answer || is_late || failed || !nothing || self.limits.bytes_min == 0 {
                    return (planned, records);
                }
                // Nothing lies between the offsets and the visible ends. What has come while that
                // was read is looked at before it waits.
                let Some(changed) = listening.take() else {
                    listening = Some(self.listen());
                    continue;
                };
                changed
            } else {
                // Registered before anything else runs on this core: no change can be missed.
                self.listen()
            };
            drop(planned);
            listening = None;
            // Too late or not, there is another look.
            let _ = reactor::timeout(deadline - reactor::now(), changed).await;
        }
    }

    fn plan(&self) -> Vec<Planned> {
        let mut taken = Taken::default();
        let plan = |wanted| {
            let planned = plan_partition(self.shard, wanted, self.limits, &taken);
            taken.add(planned.bytes, planned.is_cold());
            planned
        };
        self.wanted.iter().map(plan).collect()
    }

    fn listen(&self) -> AnyOf<impl Future<Output = ()> + Unpin + use<>> {
        let partition = |w: &Wanted| self.shard.partition(&w.topic, w.partition).ok();
        let open = self.wanted.iter().filter_map(partition);
        AnyOf(open.map(|partition| partition.changed()).collect())
    }

    /// Executes the plans; then those of partitions that were left out, as far as what came is less
    /// than what was expected.
    async fn read_planned(&self, planned: &mut [Planned]) -> Vec<Vec<Bytes>> {
        let expected: usize = planned.iter().map(|p| p.bytes).sum();
        let mut records = execute(planned).await;
        self.leave_out(planned, &mut records);
        let came: usize = records.iter().map(|parts| size_of(parts)).sum();
        if came >= expected || !planned.iter().any(|p| p.is_left_out) {
            return records;
        }
        let mut taken = Taken::default();
        for parts in &records {
            // Whatever it came from: this look reads little.
            taken.add(size_of(parts), true);
        }
        for (wanted, planned) in self.wanted.iter().zip(planned.iter_mut()) {
            if planned.is_left_out {
                *planned = plan_partition(self.shard, wanted, self.limits, &taken);
                taken.add(planned.bytes, planned.is_cold());
            }
        }
        let more = execute(planned).await;
        for (records, more) in records.iter_mut().zip(more) {
            if records.is_empty() {
                *records = more;
            }
        }
        self.leave_out(planned, &mut records);
        records
    }

    /// A read that went on behind a hole may bring more than was expected: the last ones have to
    /// wait then, but for the very first batch of all.
    fn leave_out(&self, planned: &mut [Planned], records: &mut [Vec<Bytes>]) {
        let mut bytes = 0;
        for (planned, parts) in planned.iter_mut().zip(records) {
            let size = size_of(parts);
            if bytes > 0 && size > 0 && bytes + size > self.limits.bytes_max {
                parts.clear();
                planned.is_left_out = true;
                continue;
            }
            bytes += size;
        }
    }
}

fn size_of(parts: &[Bytes]) -> usize {
    parts.iter().map(Bytes::len).sum()
}

/// Ready when any of its futures is; the others are not asked any more then.
struct AnyOf<F>(Vec<F>);

impl<F: Future<Output = ()> + Unpin> Future for AnyOf<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<()> {
        let ready = self.0.iter_mut().any(|change| Pin::new(change).poll(context).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn plan_partition(shard: &Shard, wanted: &Wanted, limits: Limits, taken: &Taken) -> Planned {
    let partition = match shard.partition(&wanted.topic, wanted.partition) {
        Ok(partition) => partition,
        Err(not_here) => {
            let leader = not_here.leader.map(|leader| (leader.node_id, leader.epoch));
            return Planned { leader, ..Planned::failed(not_here.error) };
        }
    };
    if let Err(error) = partition.check_leader_epoch(wanted.current_leader_epoch) {
        let leader = Some((shard.node_id(), partition.leader_epoch()));
        return Planned { leader, ..Planned::failed(error) };
    }
    let high_watermark = partition.high_watermark();
    let last_stable_offset = partition.last_stable_offset();
    let mut planned = Planned {
        error: ErrorCode::None,
        high_watermark,
        last_stable_offset,
        log_start_offset: partition.log.log_start_offset(),
        diverging: None,
        leader: None,
        plan: None,
        traffic: None,
        bytes: 0,
        is_left_out: false,
    };
    match partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset) {
        Ok(None) => {}
        Ok(diverging) => return Planned { diverging, ..planned },
        Err(error) => return Planned::failed(error),
    }
    let upper = if limits.read_committed { last_stable_offset } else { high_watermark };
    let room = limits.bytes_max.saturating_sub(taken.bytes).min(wanted.max_bytes.max(0) as usize);
    let is_first = taken.bytes == 0;
    let has_data = wanted.fetch_offset < upper;
    if !is_first && room == 0 {
        return Planned { is_left_out: has_data, ..planned };
    }
    let read = |room| partition.log.plan_read(wanted.fetch_offset, upper, room, is_first);
    let cold_room = COLD_BYTES_MAX.saturating_sub(taken.cold_bytes);
    let plan = match read(room) {
        Ok(plan) if !plan.is_cached() && plan.len_hint() > cold_room => read(cold_room),
        plan => plan,
    };
    match plan {
        Ok(plan) => {
            planned.bytes = plan.len_hint();
            planned.is_left_out = has_data && planned.bytes == 0;
            planned.plan = Some(plan);
            planned.traffic = Some(partition.traffic.clone());
            planned
        }
        Err(error) => {
            let log_start_offset = planned.log_start_offset;
            Planned { log_start_offset, ..Planned::failed(crate::errors::of_read(&error)) }
        }
    }
}

/// Executes the plans, in order, those that read the device side by side. Only the first of these
/// waits for memory: the others would hold what they have meanwhile.
async fn execute(planned: &mut [Planned]) -> Vec<Vec<Bytes>> {
    let mut all = Vec::with_capacity(planned.len());
    let mut waits = true;
    for some in planned.chunks_mut(READS_AT_ONCE) {
        let first = all.len();
        let mut cold: Vec<(usize, Reading<'_>)> = Vec::new();
        for (place, planned) in (first..).zip(some) {
            if planned.is_cold() {
                all.push(Vec::new());
                let reading = read(planned, std::mem::replace(&mut waits, false));
                cold.push((place, Box::pin(with_class(Class::Backfill, reading))));
            } else {
                all.push(read(planned, false).await);
            }
        }
        poll_fn(|context| {
            cold.retain_mut(|(place, reading)| match reading.as_mut().poll(context) {
                Poll::Ready(records) => {
                    if let Some(room) = all.get_mut(*place) {
                        *room = records;
                    }
                    false
                }
                Poll::Pending => true,
            });
            if cold.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    all
}

type Reading<'a> = Pin<Box<dyn Future<Output = Vec<Bytes>> + 'a>>;

/// Executes a plan; a read that fails becomes the partition's error.
async fn read(planned: &mut Planned, waits: bool) -> Vec<Bytes> {
    let Some(plan) = planned.plan.take().filter(|_| planned.bytes > 0) else { return Vec::new() };
    let read: Result<Vec<Bytes>, LogError> = match waits {
        true => plan.execute().await,
        false => plan.execute_if_room().await,
    };
    read.unwrap_or_else(|error| {
        planned.error = crate::errors::of_log(&error);
        Vec::new()
    })
}
