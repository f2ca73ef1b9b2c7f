//! Members of consumer groups for a load: they join, settle, and stay by their heartbeats.
//!
//! A thread each, since they do nothing but wait and talk (`groups/`); the fetching of what they
//! own is done by the load's own threads. A rebalance while something is measured ends the load.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::workload::Membership;
use crate::cluster::Topic;
use crate::error::{Error, Result};
use crate::groups::classic::{self, Beat};
use crate::groups::{Group, consumer};

const STACK_BYTES: usize = 256 << 10;
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Of the classic protocol; by the new one the broker says it.
const CLASSIC_INTERVAL: Duration = Duration::from_secs(1);

/// Everyone leaves when this is dropped.
#[derive(Debug)]
pub struct Members {
    seats: Vec<Seat>,
    board: Arc<Board>,
    settled: u64,
}

#[derive(Debug)]
struct Seat {
    stay: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Board {
    /// By seat; nothing before it has joined.
    owned: Mutex<Vec<Option<Vec<i32>>>>,
    changes: AtomicU64,
    failed: Mutex<Option<Error>>,
}

impl Board {
    fn set(&self, seat: usize, partitions: &[i32]) {
        if let Ok(mut owned) = self.owned.lock()
            && let Some(mine) = owned.get_mut(seat)
            && mine.as_deref() != Some(partitions)
        {
            *mine = Some(partitions.to_vec());
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn fail(&self, error: Error) {
        if let Ok(mut failed) = self.failed.lock() {
            failed.get_or_insert(error);
        }
    }

    fn failure(&self) -> Result<()> {
        match self.failed.lock().ok().and_then(|mut failed| failed.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Members {
    /// `each` members in every one of `groups` groups of every topic; gives what each of them owns,
    /// by topic, then group, then member.
    pub fn join(
        at: SocketAddr,
        protocol: Membership,
        topics: &[Arc<Topic>],
        groups: usize,
        each: usize,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Self, Vec<Vec<i32>>)> {
        let board = Arc::new(Board::default());
        if let Ok(mut owned) = board.owned.lock() {
            owned.resize(topics.len() * groups * each, None);
        }
        let mut members = Members { seats: Vec::new(), board, settled: 0 };
        let mut sizes = Vec::new();
        for topic in topics {
            for number in 0..groups {
                let name = format!("{}-group-{number}", topic.name);
                let group = Group::find(at, &name, topic)?;
                for _ in 0..each {
                    members.sit_down(&group, protocol)?;
                }
                sizes.push(topic.leaders.len());
            }
        }
        let shares = members.settle(&sizes, each, stopped)?;
        Ok((members, shares))
    }

    fn sit_down(&mut self, group: &Group, protocol: Membership) -> Result<()> {
        let (stay, orders) = channel();
        let (group, board, seat) = (group.clone(), Arc::clone(&self.board), self.seats.len());
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            let outcome = match protocol {
                Membership::Classic => play_classic(&group, &board, seat, &orders),
                _ => play_consumer(&group, &board, seat, &orders),
            };
            if let Err(error) = outcome {
                board.fail(error);
            }
        });
        let thread = Some(thread.map_err(Error::io("start a member's thread"))?);
        self.seats.push(Seat { stay: Some(stay), thread });
        Ok(())
    }

    /// Until every member has joined, and every partition of every group has exactly one owner and
    /// every member its even share: the first to come have everything until the others are there.
    fn settle(
        &mut self,
        sizes: &[usize],
        each: usize,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<i32>>> {
        let deadline = Instant::now() + SETTLED_WITHIN;
        loop {
            self.board.failure()?;
            let changes = self.board.changes.load(Ordering::Relaxed);
            let owned = self.board.owned.lock().map(|owned| owned.clone()).unwrap_or_default();
            let joined = owned.iter().all(Option::is_some);
            let owned: Vec<Vec<i32>> = owned.into_iter().map(Option::unwrap_or_default).collect();
            let mut groups = owned.chunks(each).zip(sizes);
            if joined && groups.all(|(members, size)| is_settled(members, *size)) {
                self.settled = changes;
                return Ok(owned);
            }
            if stopped() {
                return Err(Error::Usage("stopped while groups were joining".to_owned()));
            }
            if Instant::now() > deadline {
                let what = "groups did not settle".to_owned();
                let last = format!("{:?}", owned.iter().map(Vec::len).collect::<Vec<_>>());
                return Err(Error::TooLate { what, within: SETTLED_WITHIN, last });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Nothing has changed hands since everything was settled.
    pub fn still_settled(&self) -> Result<()> {
        self.board.failure()?;
        match self.board.changes.load(Ordering::Relaxed) == self.settled {
            true => Ok(()),
            false => Err(Error::Usage("a group rebalanced while it was measured".to_owned())),
        }
    }
}

fn is_settled(members: &[Vec<i32>], partitions: usize) -> bool {
    let least = partitions / members.len().max(1);
    let even = |owned: &Vec<i32>| (least..=least + 1).contains(&owned.len());
    if !members.iter().all(even) {
        return false;
    }
    let mut all: Vec<i32> = members.iter().flatten().copied().collect();
    all.sort_unstable();
    all.len() == partitions && (0..).zip(&all).all(|(index, owned)| index == *owned)
}

impl Drop for Members {
    fn drop(&mut self) {
        for seat in &mut self.seats {
            seat.stay = None;
        }
        for thread in self.seats.iter_mut().filter_map(|seat| seat.thread.take()) {
            // Its own failure was told; there is nobody left to tell of a panic.
            let _ = thread.join();
        }
    }
}

fn stays(orders: &Receiver<()>, wait: Duration) -> bool {
    matches!(orders.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}

fn play_classic(group: &Group, board: &Board, seat: usize, orders: &Receiver<()>) -> Result<()> {
    let mut member = classic::Member::open(group)?;
    loop {
        let mut partitions = member.join()?;
        partitions.sort_unstable();
        board.set(seat, &partitions);
        loop {
            if !stays(orders, CLASSIC_INTERVAL) {
                return member.leave();
            }
            if member.heartbeat()? == Beat::Rebalance {
                break;
            }
        }
    }
}

fn play_consumer(group: &Group, board: &Board, seat: usize, orders: &Receiver<()>) -> Result<()> {
    let mut member = consumer::Member::open(group)?;
    loop {
        let change = member.heartbeat()?;
        let mut owned = member.owned().to_vec();
        owned.sort_unstable();
        board.set(seat, &owned);
        let wait = if change.is_none() { member.interval } else { Duration::ZERO };
        if !stays(orders, wait) {
            return member.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_settled_when_every_partition_has_one_owner_and_every_member_its_share() {
        assert!(is_settled(&[vec![2, 0], vec![1]], 3));
        assert!(is_settled(&[vec![], vec![0]], 1));
        assert!(!is_settled(&[vec![0, 1], vec![1]], 3));
        assert!(!is_settled(&[vec![0], vec![1]], 3));
        assert!(!is_settled(&[vec![0, 3], vec![1]], 3));
        assert!(!is_settled(&[vec![0, 1, 2, 3], vec![]], 4));
    }
}
