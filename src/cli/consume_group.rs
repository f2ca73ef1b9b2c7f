//! `corelane consume --group`: as one member of a consumer group, which shares the topic's
//! partitions with the others and goes on where the group was.
//!
//! What was printed is committed: about every second, before partitions are given up, and at the
//! end. A crash in between prints some records again, to whoever has their partition then. Once the
//! group has gone on without this member, what it printed before is not committed any more: others
//! have been there.

use std::collections::BTreeMap;
use std::time::Duration;

use reactor::{Either, Instant, race};
use wire::ErrorCode;

use super::args::ConsumeArgs;
use super::consume::{Output, Span, positions};
use super::position::Position;
use super::record_format::RecordFormat;
use crate::client::Cluster;
use crate::client::consumer::{Consumer, Reading};
use crate::client::groups::{Committer, commit, committed};
use crate::client::membership::{Membership, News};
use crate::client::offsets::Isolation;
use crate::error::{Error, Result};

const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// A commit in an epoch that has just passed is tried again in the next one.
const COMMIT_TRIES: usize = 10;
const COMMIT_PAUSE: Duration = Duration::from_millis(200);

pub async fn run(args: &ConsumeArgs, group: &str, format: &RecordFormat) -> Result<()> {
    if !args.source.partitions.is_empty() {
        let remedy = "name the topic only: the group shares its partitions";
        return Err(Error::config("partitions cannot be chosen with --group", remedy));
    }
    let mut cluster = super::cluster(&args.cluster);
    cluster.wait_for_topic(&args.source.topic, false).await?;
    let membership = Membership::join(super::cluster(&args.cluster), group, &args.source.topic);
    let mut member = Member {
        args,
        group,
        cluster,
        membership,
        term: 0,
        consumer: None,
        positions: BTreeMap::new(),
        uncommitted: BTreeMap::new(),
        committed_at: reactor::now(),
    };
    // Someone who ends it wants the others to go on at once.
    let ended = race(member.read(format), reactor::signal::termination()).await;
    let committed = member.commit().await;
    member.membership.leave().await;
    match ended {
        Either::Left(ended) => ended.and(committed),
        Either::Right(_) => committed,
    }
}

struct Member<'a> {
    args: &'a ConsumeArgs,
    group: &'a str,
    cluster: Cluster,
    membership: Membership,
    /// The term of the membership that all of the following belongs to.
    term: u64,
    /// Reads the partitions that the member has; none while it has none.
    consumer: Option<Consumer>,
    /// Next offset of each of its partitions.
    positions: BTreeMap<i32, i64>,
    uncommitted: BTreeMap<i32, i64>,
    committed_at: Instant,
}

impl Member<'_> {
    /// Until enough was printed, or without `--follow` until all its partitions were read to the
    /// end.
    async fn read(&mut self, format: &RecordFormat) -> Result<()> {
        let mut left = self.args.count.unwrap_or(u64::MAX);
        while left > 0 {
            let changed = self.membership.changed();
            match self.membership.news(self.term)? {
                Some(News::Lost { term }) => {
                    self.lose(term);
                    continue;
                }
                Some(News::Partitions(partitions)) => {
                    self.take_over(partitions).await?;
                    continue;
                }
                None => {}
            }
            let Some(consumer) = &mut self.consumer else {
                let most = if self.args.follow { Duration::MAX } else { self.cluster.patience() };
                if reactor::timeout(most, changed).await.is_err() {
                    let what = format!("group {} gave this member no partition", self.group);
                    return Err(Error::refused(what, "others have them all; add --follow to wait"));
                }
                continue;
            };
            let commit_at = self.committed_at + COMMIT_EVERY;
            let due = !self.uncommitted.is_empty();
            let commit_due = async {
                match due {
                    true => reactor::sleep_until(commit_at).await,
                    false => std::future::pending().await,
                }
            };
            let awaited = race(changed, commit_due);
            let fetched = match race(awaited, consumer.next(&mut self.cluster)).await {
                Either::Left(what) => {
                    // What was being fetched is asked for again.
                    consumer.begin_again();
                    if let Either::Right(()) = what {
                        self.commit().await?;
                    }
                    continue;
                }
                Either::Right(fetched) => fetched?,
            };
            let Some(fetched) = fetched else { return Ok(()) };
            let topic = &self.args.source.topic;
            let next = Output::new(format, topic).print_all(&fetched, &mut left).await?;
            self.positions.insert(fetched.partition, next);
            self.uncommitted.insert(fetched.partition, next);
            if self.committed_at.elapsed() >= COMMIT_EVERY {
                self.commit().await?;
            }
        }
        Ok(())
    }

    /// Others have what this member had, and may have read on: nothing of it counts any more.
    fn lose(&mut self, term: u64) {
        if !self.uncommitted.is_empty() {
            tracing::warn!("the group went on without this member: some records come again");
        }
        self.term = term;
        self.consumer = None;
        self.positions.clear();
        self.uncommitted.clear();
    }

    /// Gives up what others shall have, and goes on where the group was in what is new.
    async fn take_over(&mut self, partitions: Vec<i32>) -> Result<()> {
        self.consumer = None;
        self.commit().await?;
        self.positions.retain(|partition, _| partitions.contains(partition));
        let (args, group) = (self.args, self.group);
        let isolation = isolation(args);
        if partitions.iter().any(|partition| !self.positions.contains_key(partition)) {
            let known =
                self.cluster.retrying(async |cluster| committed(cluster, group).await).await?;
            let span = Span::of(&mut self.cluster, &args.source, isolation).await?;
            let default = if args.follow { Position::Latest } else { Position::Earliest };
            let from = args.from.unwrap_or(default);
            let mut begin = positions(&mut self.cluster, &span, from, isolation).await?;
            for partition in &partitions {
                let key = (args.source.topic.clone(), *partition);
                let next = known.get(&key).copied().or_else(|| begin.remove(partition));
                self.positions.entry(*partition).or_insert(next.unwrap_or(0));
            }
        }
        self.membership.own(self.term, partitions);
        self.begin_reading(isolation).await
    }

    async fn begin_reading(&mut self, isolation: Isolation) -> Result<()> {
        if self.positions.is_empty() {
            return Ok(());
        }
        let mut ends = BTreeMap::new();
        if !self.args.follow {
            ends = Span::of(&mut self.cluster, &self.args.source, isolation).await?.ends;
        }
        self.consumer = Some(Consumer::new(Reading {
            topic: self.args.source.topic.clone(),
            positions: self.positions.clone(),
            ends,
            isolation,
        }));
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        self.committed_at = reactor::now();
        if self.uncommitted.is_empty() {
            return Ok(());
        }
        let (group, topic) = (self.group, self.args.source.topic.as_str());
        let (membership, offsets) = (&self.membership, &self.uncommitted);
        for tries in 1.. {
            // Never in the name of a later member: its epoch would be good for offsets of before.
            let Some(epoch) = membership.epoch_in(self.term) else {
                tracing::warn!("the group went on without this member: some records come again");
                break;
            };
            let who = Committer { member: membership.member(), epoch };
            let done = self
                .cluster
                .retrying(async |cluster| commit(cluster, group, who, topic, offsets).await)
                .await;
            match done.as_ref().err().map(|error| error.code()) {
                Some(Some(ErrorCode::StaleMemberEpoch)) if tries < COMMIT_TRIES => {
                    reactor::sleep(COMMIT_PAUSE).await;
                }
                Some(Some(ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch)) => {
                    tracing::warn!(
                        "the group went on without this member: some records come again"
                    );
                    break;
                }
                _ => {
                    done?;
                    break;
                }
            }
        }
        self.uncommitted.clear();
        Ok(())
    }
}

fn isolation(args: &ConsumeArgs) -> Isolation {
    if args.uncommitted { Isolation::Uncommitted } else { Isolation::Committed }
}
