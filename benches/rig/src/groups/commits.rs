//! Offset commits as fast as they are answered: each connection has one on the way, for a group of
//! its own.

use std::thread;

use super::idle::{Committer, SIMPLE, commit};
use super::{Group, Protocol, classic, consumer};
use crate::connection::Connection;
use crate::error::Result;
use crate::sample::{Progress, Sample, Windows, measure};

#[derive(Debug)]
pub struct Load<'a> {
    /// One connection each.
    pub groups: &'a [Group],
    /// Whose member commits; `None`: simple consumers, members of nothing.
    pub member: Option<Protocol>,
    /// Partitions in one commit.
    pub partitions: i32,
}

/// In the samples a record is a commit.
pub fn run_windows(load: &Load<'_>, broker: u32, windows: &Windows) -> Result<Vec<Sample>> {
    let progress = Progress::default();
    thread::scope(|scope| {
        let start = |group| {
            let progress = &progress;
            scope.spawn(move || {
                let outcome = run(load, group, progress);
                if outcome.is_err() {
                    progress.stop();
                }
                outcome
            })
        };
        let threads: Vec<_> = load.groups.iter().map(start).collect();
        let samples = measure(&progress, broker, windows);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        samples
    })
}

fn run(load: &Load<'_>, group: &Group, progress: &Progress) -> Result<()> {
    match load.member {
        None => repeat(load, group, SIMPLE, progress),
        Some(Protocol::Classic) => {
            let mut member = classic::Member::open(group)?;
            member.join()?;
            let (id, epoch) = member.identity();
            repeat(load, group, Committer { member: id, epoch }, progress)?;
            member.leave()
        }
        Some(Protocol::Consumer) => {
            let mut member = consumer::Member::open(group)?;
            while !member.heartbeat()?.is_none() {}
            let (id, epoch) = member.identity();
            repeat(load, group, Committer { member: id, epoch }, progress)?;
            member.leave()
        }
    }
}

fn repeat(load: &Load<'_>, group: &Group, who: Committer<'_>, progress: &Progress) -> Result<()> {
    let mut connection = Connection::open(group.coordinator)?;
    let mut offset = 0;
    while !progress.stopped() {
        offset += 1;
        commit(&mut connection, &group.name, who, &group.topic, (load.partitions, offset))?;
        progress.add(1, 0);
    }
    Ok(())
}
