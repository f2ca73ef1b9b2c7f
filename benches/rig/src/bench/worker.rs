//! One thread of a load: its producers and consumers, their links, and the schedule that feeds
//! them.
//!
//! It waits for its sockets and one timer (epoll), so that thousands of connections need no thread
//! each. What is due is taken up when it is due or at the next tick, which is far shorter than a
//! linger.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
};

use super::consumer::{self, Consumer};
use super::link::{Inbox, Link};
use super::measure::{Clock, Live, Recorder, Window};
use super::producer::{self, Lingering, Producer};
use super::schedule::{Arrivals, Dice, Schedule};
use super::workload::{Acks, Workload};
use crate::cluster::Topic;
use crate::error::{Error, Result};
use crate::procfs;

const SECOND_NS: u64 = 1_000_000_000;
/// The flag to stop is looked at so often.
const LOOK_EVERY_NS: u64 = SECOND_NS / 20;
/// What is due is taken up no more often, so that a high rate is not a busy loop.
const TICK_NS: u64 = 20_000;
/// Where records linger anyhow.
const LINGER_TICK_NS: u64 = 250_000;
/// Records taken up before sockets are looked at again.
const TAKE_MAX: usize = 2_048;
/// How long the broker has, after the last record was due, for what is on the way.
pub const DRAIN: Duration = Duration::from_secs(10);
const DRAIN_STOPPED: Duration = Duration::from_secs(2);
/// Records of one thread that are due and not taken up: beyond that the load ends.
const WAITING_MAX: usize = 8 << 20;
const EVENTS: usize = 256;
const TIMER: u64 = u64::MAX;
/// The kernel may otherwise fire the timer 50 microseconds late.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);

/// Whose a link is.
#[derive(Debug, Clone, Copy)]
pub enum Owner {
    Producer { at: usize, lane: usize },
    Coordinator { producer: usize },
    Consumer { at: usize, lane: usize },
}

/// The same for all threads of a load.
#[derive(Debug)]
pub struct Terms {
    pub workload: Workload,
    pub produce_version: i16,
    pub fetch_version: i16,
    /// Those that are produced to, then those that are read again.
    pub topics: Vec<Arc<Topic>>,
    pub mean_bytes: f64,
    pub window: Window,
    pub threads: usize,
}

pub struct Worker {
    pub terms: Arc<Terms>,
    pub live: Arc<Live>,
    pub clock: Clock,
    pub links: Vec<Link>,
    pub inboxes: Vec<Inbox>,
    pub owners: Vec<Owner>,
    pub producers: Vec<Producer>,
    pub consumers: Vec<Consumer>,
    /// Of an open loop.
    pub schedule: Option<Schedule>,
    pub recorder: Recorder,
}

/// What a thread leaves behind.
#[derive(Debug)]
pub struct Outcome {
    pub recorder: Recorder,
    /// Of its time in the window, how much of it it ran or waited for a processor.
    pub busy: f64,
    /// More was due than the broker took.
    pub overrun: bool,
}

impl Worker {
    pub fn run(self) -> Result<Outcome> {
        let live = Arc::clone(&self.live);
        let outcome = Engine::start(self).and_then(|mut engine| engine.run());
        if outcome.is_err() {
            live.stop();
        }
        outcome
    }
}

struct Engine {
    w: Worker,
    epoll: OwnedFd,
    timer: OwnedFd,
    lingering: VecDeque<Lingering>,
    dice: Dice,
    /// What is due from here on is not taken up.
    until: u64,
    stage: Stage,
    overrun: bool,
    /// Clock and time spent busy at the start of the window.
    marked: Option<(u64, f64)>,
    busy: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Loading,
    /// Nothing more is taken up; ends at the latest at this moment.
    Draining(u64),
    /// This thread's producers are done.
    Drained(u64),
}

impl Engine {
    fn start(w: Worker) -> Result<Self> {
        // Only accuracy is lost without it.
        let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK);
        let io = |error: rustix::io::Errno| Error::io("epoll")(error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(io)?;
        let edge = epoll::EventFlags::ET;
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | edge;
        for (at, link) in w.links.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, link, data, both).map_err(io)?;
        }
        let data = epoll::EventData::new_u64(TIMER);
        epoll::add(&epoll, &timer, data, epoll::EventFlags::IN | edge).map_err(io)?;
        let dice = Dice::new(w.terms.workload.seed.rotate_left(17));
        let until = w.terms.window.until;
        Ok(Engine {
            w,
            epoll,
            timer,
            lingering: VecDeque::new(),
            dice,
            until,
            stage: Stage::Loading,
            overrun: false,
            marked: None,
            busy: 0.0,
        })
    }

    fn run(&mut self) -> Result<Outcome> {
        for at in 0..self.w.consumers.len() {
            let now = self.w.clock.now();
            let (consumers, mut shop) = self.reading(now);
            consumers.get_mut(at).map_or(Ok(()), |consumer| consumer.start(&mut shop))?;
        }
        let mut events = Vec::with_capacity(EVENTS);
        let mut look_at = 0;
        loop {
            let now = self.w.clock.now();
            self.mark(now);
            if self.stage == Stage::Loading {
                self.load(now)?;
            }
            self.linger(now)?;
            self.wake(now)?;
            if now >= look_at {
                look_at = now + LOOK_EVERY_NS;
                self.look(now)?;
            }
            if self.is_over(now) {
                return Ok(self.end(now));
            }
            self.wait(now, look_at, &mut events)?;
            self.events(&events)?;
            self.w.recorder.publish(&self.w.live, now);
        }
    }

    /// What producers are lent, beside the producers.
    fn making(&mut self, now: u64) -> (&mut Vec<Producer>, producer::Shop<'_>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shop = producer::Shop {
            workload: &self.w.terms.workload,
            version: self.w.terms.produce_version,
            links: &mut self.w.links,
            recorder: &mut self.w.recorder,
            live: &self.w.live,
            lingering: &mut self.lingering,
            now,
            now_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        };
        (&mut self.w.producers, shop)
    }

    fn reading(&mut self, now: u64) -> (&mut Vec<Consumer>, consumer::Shop<'_>) {
        let shop = consumer::Shop {
            workload: &self.w.terms.workload,
            version: self.w.terms.fetch_version,
            topics: &self.w.terms.topics,
            links: &mut self.w.links,
            recorder: &mut self.w.recorder,
            live: &self.w.live,
            mean_bytes: self.w.terms.mean_bytes,
            now,
        };
        (&mut self.w.consumers, shop)
    }

    /// Takes up what is due, or as much as goes.
    fn load(&mut self, now: u64) -> Result<()> {
        let Some(mut schedule) = self.w.schedule.take() else {
            if now >= self.until {
                return self.close(now);
            }
            let (producers, mut shop) = self.making(now);
            return producers.iter_mut().try_for_each(|one| one.fill(TAKE_MAX, &mut shop));
        };
        let even = self.w.terms.workload.arrivals == Arrivals::Constant;
        let (until, mut dice) = (self.until, self.dice.clone());
        let (producers, mut shop) = self.making(now);
        let count = producers.len() as u64;
        for _ in 0..TAKE_MAX {
            let due = schedule.due();
            if due > now || due >= until {
                break;
            }
            // A random one of many gives each of them a Poisson schedule of its own.
            let at = if even { schedule.count() % count.max(1) } else { dice.below(count) };
            schedule.advance();
            let at = usize::try_from(at).unwrap_or(0);
            producers.get_mut(at).map_or(Ok(()), |producer| producer.due(due, &mut shop))?;
        }
        self.dice = dice;
        // However late it is: everything that was due until then has been taken up.
        let all = schedule.due() >= until && now >= until;
        self.w.schedule = Some(schedule);
        if all { self.close(now) } else { Ok(()) }
    }

    fn linger(&mut self, now: u64) -> Result<()> {
        while let Some(first) = self.lingering.front().copied().filter(|first| first.until <= now) {
            self.lingering.pop_front();
            let (producers, mut shop) = self.making(now);
            if let Some(producer) = producers.get_mut(first.producer) {
                producer.lingered(first, &mut shop)?;
            }
        }
        Ok(())
    }

    fn wake(&mut self, now: u64) -> Result<()> {
        if !self.w.terms.workload.transactional() {
            return Ok(());
        }
        let (producers, mut shop) = self.making(now);
        let due = |one: &&mut Producer| one.wake_at().is_some_and(|at| at <= now);
        producers.iter_mut().filter(due).try_for_each(|one| one.woken(&mut shop))
    }

    /// Now and then: whether to stop, and whether too much waits.
    fn look(&mut self, now: u64) -> Result<()> {
        let waiting: usize = self.w.producers.iter().map(Producer::waiting).sum();
        if waiting > WAITING_MAX && self.stage == Stage::Loading {
            self.overrun = true;
            self.w.live.stop();
        }
        if self.w.live.stopped() && self.stage == Stage::Loading {
            self.until = self.until.min(now);
        }
        if let Stage::Draining(deadline) = self.stage
            && (now >= deadline || self.w.producers.iter().all(Producer::is_idle))
        {
            self.w.live.drained.fetch_add(1, Ordering::Relaxed);
            self.stage = Stage::Drained(deadline);
        }
        Ok(())
    }

    /// Nothing more is taken up.
    fn close(&mut self, now: u64) -> Result<()> {
        self.w.recorder.window.until = self.until;
        self.settle_busy(now);
        let workload = &self.w.terms.workload;
        if workload.rate.is_max() && !workload.transactional() {
            // Nobody waits for what is on the way in a closed loop.
            self.w.live.drained.fetch_add(1, Ordering::Relaxed);
            self.stage = Stage::Drained(now);
            return Ok(());
        }
        let within = if self.w.live.stopped() { DRAIN_STOPPED } else { DRAIN };
        let within = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        self.stage = Stage::Draining(now.saturating_add(within));
        let (producers, mut shop) = self.making(now);
        producers.iter_mut().try_for_each(|one| one.flush(&mut shop))
    }

    fn is_over(&self, now: u64) -> bool {
        let Stage::Drained(deadline) = self.stage else { return false };
        if now >= deadline || self.w.consumers.is_empty() {
            return true;
        }
        let live = &self.w.live;
        let all = live.drained.load(Ordering::Relaxed) >= self.w.terms.threads as u64;
        let groups = self.w.terms.workload.groups as u64;
        let due = live.acked_records.load(Ordering::Relaxed).saturating_mul(groups);
        all && live.read_records.load(Ordering::Relaxed) >= due
    }

    fn end(&mut self, now: u64) -> Outcome {
        for producer in &mut self.w.producers {
            if !self.w.terms.workload.rate.is_max() {
                let size = self.w.terms.workload.transaction_records;
                producer.give_up(size, &mut self.w.recorder, now);
            }
        }
        self.w.recorder.ended(now);
        let window = self.w.recorder.window;
        let recorder = std::mem::replace(&mut self.w.recorder, Recorder::new(window));
        Outcome { recorder, busy: self.busy, overrun: self.overrun }
    }

    fn mark(&mut self, now: u64) {
        if self.marked.is_none() && now >= self.w.terms.window.from {
            self.marked = Some((now, thread_busy_seconds()));
        }
    }

    fn settle_busy(&mut self, now: u64) {
        if let Some((from, cpu)) = self.marked.filter(|(from, _)| now > *from) {
            let wall = (now - from) as f64 / 1e9;
            self.busy = (thread_busy_seconds() - cpu) / wall;
        }
    }

    /// Until something comes, or something is due.
    fn wait(&mut self, now: u64, look_at: u64, events: &mut Vec<epoll::Event>) -> Result<()> {
        let io = |error: rustix::io::Errno| Error::io("epoll")(error.into());
        let lingers = self.w.terms.workload.linger_ms > 0.0;
        let tick = now + if lingers { LINGER_TICK_NS } else { TICK_NS };
        let loading = self.stage == Stage::Loading;
        let due = self.w.schedule.as_ref().filter(|_| loading).map(|all| all.due().min(self.until));
        let lingered = self.lingering.front().map(|first| first.until);
        let wakes = self.w.terms.workload.transactional();
        let woken = wakes.then(|| self.w.producers.iter().filter_map(Producer::wake_at).min());
        let busy = loading && self.w.schedule.is_none();
        let in_flight = self.w.terms.workload.in_flight;
        let busy = busy && self.w.producers.iter().any(|one| one.takes_more(in_flight));
        let next = [due.map(|due| due.max(tick)), lingered, woken.flatten(), Some(look_at)];
        let next = if busy { 0 } else { next.into_iter().flatten().min().unwrap_or(look_at) };
        events.clear();
        let instant = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = (next <= now).then_some(&instant);
        if timeout.is_none() {
            let left = next - now;
            let it_value = Timespec {
                tv_sec: i64::try_from(left / SECOND_NS).unwrap_or(i64::MAX),
                tv_nsec: (left % SECOND_NS) as _,
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let set = Itimerspec { it_interval, it_value };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &set)
                .map_err(io)?;
        }
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io(error)),
        }
    }

    fn events(&mut self, events: &[epoll::Event]) -> Result<()> {
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            let Some(at) = usize::try_from(token).ok().filter(|_| token != TIMER) else { continue };
            if flags.contains(epoll::EventFlags::OUT) {
                self.flush(at)?;
            }
            let came = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(came) {
                self.receive(at)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Result<()> {
        let Some(link) = self.w.links.get_mut(at) else { return Ok(()) };
        link.flush()?;
        if let Some(&Owner::Producer { at, lane }) = self.w.owners.get(at)
            && self.w.terms.workload.acks == Acks::None
        {
            let now = self.w.clock.now();
            let (producers, mut shop) = self.making(now);
            return producers.get_mut(at).map_or(Ok(()), |one| one.written(lane, &mut shop));
        }
        Ok(())
    }

    /// All that has come on one link.
    fn receive(&mut self, at: usize) -> Result<()> {
        let Some(owner) = self.w.owners.get(at).copied() else { return Ok(()) };
        // Lent to what is called with its frames.
        let mut inboxes = std::mem::take(&mut self.w.inboxes);
        let outcome = match inboxes.get_mut(at) {
            Some(inbox) => self.take_all(inbox, owner),
            None => Ok(()),
        };
        self.w.inboxes = inboxes;
        outcome
    }

    fn take_all(&mut self, inbox: &mut Inbox, owner: Owner) -> Result<()> {
        loop {
            let more = inbox.fill()?;
            while let Some(frame) = inbox.frame()? {
                self.answered(owner, frame)?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn answered(&mut self, owner: Owner, frame: &[u8]) -> Result<()> {
        let now = self.w.clock.now();
        match owner {
            Owner::Producer { at, lane } => {
                let (producers, mut shop) = self.making(now);
                producers.get_mut(at).map_or(Ok(()), |one| one.answered(lane, frame, &mut shop))
            }
            Owner::Coordinator { producer } => {
                let (producers, mut shop) = self.making(now);
                producers.get_mut(producer).map_or(Ok(()), |one| one.committed(frame, &mut shop))
            }
            Owner::Consumer { at, lane } => {
                let (consumers, mut shop) = self.reading(now);
                consumers.get_mut(at).map_or(Ok(()), |one| one.answered(lane, frame, &mut shop))
            }
        }
    }
}

/// Processor time of this thread, and what it waited for a processor while it had work: a client
/// that others keep from running has no time left either.
fn thread_busy_seconds() -> f64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let waited = procfs::thread_waited_seconds().unwrap_or(0.0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 + waited
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_processor_is_busy() {
        let spin = || {
            let allowed = sched_getaffinity(None).unwrap();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            let (begun, before) = (Instant::now(), thread_busy_seconds());
            while begun.elapsed() < Duration::from_millis(300) {}
            (thread_busy_seconds() - before) / begun.elapsed().as_secs_f64()
        };
        // By its processor time alone each would be busy a quarter of the time.
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(spin)).collect();
        let busy: Vec<f64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(busy.iter().all(|share| *share > 0.8), "{busy:?}");
    }
}
