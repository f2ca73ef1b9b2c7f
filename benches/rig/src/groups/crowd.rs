//! Many members of one group, a thread each, and how long it takes until all of them have their new
//! partitions when one joins or leaves.
//!
//! They come and go as in a rolling restart: the one that leaves is the one that is there longest.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::board::{Board, Seat};
use super::classic::{self, Beat};
use super::{Group, Protocol, consumer};
use crate::error::Result;
use crate::procfs;

/// Members only wait and talk.
const STACK_BYTES: usize = 256 << 10;
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
/// Of the golden section: where in the interval between heartbeats each rebalance begins.
const STRIDE: f64 = 0.618_033_988_75;

/// What to rebalance.
#[derive(Debug)]
pub struct Rebalances<'a> {
    pub group: &'a Group,
    pub protocol: Protocol,
    pub members: usize,
    /// Between two heartbeats. By the new protocol the broker says it.
    pub interval: Duration,
    /// Of each: one more member joins, then one leaves.
    pub rounds: usize,
    /// The broker's process.
    pub broker: u32,
}

/// Times from the member's first word (or last) until everything has its one owner again.
#[derive(Debug, Default)]
pub struct Figures {
    pub joins: Vec<Duration>,
    pub leaves: Vec<Duration>,
    /// The broker's processor time for one rebalance, pauses between them left out.
    pub cpu_seconds: f64,
}

impl Rebalances<'_> {
    pub fn run(&self) -> Result<Figures> {
        let board = Board::new(self.group.topic.leaders.len());
        thread::scope(|scope| {
            let mut crowd = Crowd { plan: self, board: &board, scope, seats: Vec::new(), came: 0 };
            let outcome = crowd.rounds();
            let ended = crowd.end();
            outcome.and_then(|figures| ended.map(|()| figures))
        })
    }
}

struct Crowd<'scope, 'env> {
    plan: &'env Rebalances<'env>,
    board: &'env Board,
    scope: &'scope Scope<'scope, 'env>,
    seats: Vec<Taken<'scope>>,
    /// Members so far.
    came: usize,
}

/// A member's thread. It leaves the group when the sender is dropped.
struct Taken<'scope> {
    stay: Sender<()>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl Crowd<'_, '_> {
    fn rounds(&mut self) -> Result<Figures> {
        let mut figures = Figures::default();
        for _ in 0..self.plan.members {
            self.come()?;
        }
        self.settled()?;
        let mut cpu_seconds = 0.0;
        for round in 0..self.plan.rounds {
            for (step, times) in [&mut figures.joins, &mut figures.leaves].into_iter().enumerate() {
                let fraction = (STRIDE * (2 * round + step + 1) as f64).fract();
                thread::sleep(self.plan.interval.mul_f64(fraction).max(self.plan.pause()));
                let before = procfs::cpu_seconds(self.plan.broker)?;
                let begun = Instant::now();
                match step {
                    0 => self.come()?,
                    _ => self.go(),
                }
                times.push(self.settled()?.duration_since(begun));
                cpu_seconds += procfs::cpu_seconds(self.plan.broker)? - before;
            }
        }
        figures.cpu_seconds = cpu_seconds / (2 * self.plan.rounds).max(1) as f64;
        Ok(figures)
    }

    fn come(&mut self) -> Result<()> {
        let (stay, orders) = channel();
        let (plan, board, seat) = (self.plan, self.board, Seat(self.came));
        let thread =
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(self.scope, move || {
                let outcome = match plan.protocol {
                    Protocol::Classic => play_classic(plan, board, seat, &orders),
                    Protocol::Consumer => play_consumer(plan, board, seat, &orders),
                };
                if let Err(error) = outcome {
                    board.fail(error);
                }
            });
        let thread = thread.map_err(crate::error::Error::io("start a member's thread"))?;
        self.came += 1;
        self.seats.push(Taken { stay, thread });
        Ok(())
    }

    /// The one that is there longest goes; its thread ends by itself.
    fn go(&mut self) {
        if !self.seats.is_empty() {
            drop(self.seats.remove(0).stay);
        }
    }

    fn settled(&self) -> Result<Instant> {
        self.board.settled(self.seats.len(), SETTLED_WITHIN)
    }

    /// Everyone leaves at once.
    fn end(self) -> Result<()> {
        let (stay, threads): (Vec<_>, Vec<_>) =
            self.seats.into_iter().map(|taken| (taken.stay, taken.thread)).unzip();
        drop(stay);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        self.board.failure()
    }
}

impl Rebalances<'_> {
    /// A broker may compute a new assignment only once a second
    /// (group.consumer.assignment.interval.ms).
    fn pause(&self) -> Duration {
        match self.protocol {
            Protocol::Classic => Duration::ZERO,
            Protocol::Consumer => Duration::from_millis(1_100),
        }
    }
}

/// Whether the member shall go on.
fn stays(orders: &Receiver<()>, wait: Duration) -> bool {
    matches!(orders.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}

fn play_classic(
    p: &Rebalances<'_>,
    board: &Board,
    seat: Seat,
    orders: &Receiver<()>,
) -> Result<()> {
    let mut member = classic::Member::open(p.group)?;
    loop {
        let partitions = member.join()?;
        board.claim(seat, &partitions)?;
        loop {
            if !stays(orders, p.interval) {
                board.release(seat, &partitions);
                return member.leave();
            }
            if member.heartbeat()? == Beat::Rebalance {
                break;
            }
        }
        board.release(seat, &partitions);
    }
}

fn play_consumer(
    p: &Rebalances<'_>,
    board: &Board,
    seat: Seat,
    orders: &Receiver<()>,
) -> Result<()> {
    let mut member = consumer::Member::open(p.group)?;
    loop {
        let change = member.heartbeat()?;
        board.release(seat, &change.given_up);
        board.claim(seat, &change.got)?;
        let wait = if change.is_none() { member.interval } else { Duration::ZERO };
        if !stays(orders, wait) {
            board.release(seat, member.owned());
            return member.leave();
        }
    }
}
