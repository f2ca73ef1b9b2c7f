//! Which legs a run has, and in which order.
//!
//! The order lets a drift of the machine hit all brokers: the first pass runs each part on Kafka and
//! then on the others, Corelane last; the second pass the other way round and from the last part to
//! the first. A rate that Kafka's maximum sets is known before anyone needs it.

use std::fmt;

use clap::ValueEnum;

use crate::contender::{self, Contender};
use crate::legs::restart::Held;
use crate::peers::Peers;
use crate::scale::Scale;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Start, produce, consume, latency, memory
    Loads,
    /// What Corelane has to reach: throughput, latency at half of Kafka's maximum, flushing and not
    Speed,
    /// Restart with gigabytes and with thousands of partitions, killed and stopped
    Restart,
    /// Latency beside readers of an old log
    Backfill,
    /// Ten partitions and ten thousand
    Partitions,
    /// Consumer groups: joins, rebalances, commits, idle groups and their loading
    Groups,
    /// Transactions, idempotence, a hundred thousand producer ids
    Txn,
}

/// What one leg measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Loads,
    Speed,
    Restart(Held),
    Backfill,
    Partitions,
    Groups,
    IdleGroups,
    Transactions,
    ProducerIds,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Loads => f.write_str("loads"),
            Part::Speed => f.write_str("speed"),
            Part::Restart(held) => write!(f, "restart with {held}"),
            Part::Backfill => f.write_str("backfill readers"),
            Part::Partitions => f.write_str("many partitions"),
            Part::Groups => f.write_str("consumer groups"),
            Part::IdleGroups => f.write_str("idle groups"),
            Part::Transactions => f.write_str("transactions"),
            Part::ProducerIds => f.write_str("producer ids"),
        }
    }
}

/// One part on each of several brokers.
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    pub part: Part,
    pub contenders: Vec<Contender>,
}

const BOTH: [Contender; 2] = [Contender::Kafka, Contender::Corelane];

/// With `only`, what that one takes part in; with the peers that are here.
pub fn plan(groups: &[Group], scale: &Scale, only: Option<Contender>, peers: &Peers) -> Vec<Pass> {
    let wanted = |group| groups.contains(&group);
    let (mut parts, mut once) = (Vec::new(), Vec::new());
    if wanted(Group::Speed) {
        parts.push(Part::Speed);
    }
    // What takes longest comes first, so that its repetition is what a time limit leaves out.
    if wanted(Group::Partitions) {
        parts.push(Part::Partitions);
    }
    if wanted(Group::Restart) {
        parts.extend(scale.held.iter().copied().map(Part::Restart));
        once.extend(scale.held_once.iter().copied().map(Part::Restart));
    }
    if wanted(Group::Backfill) {
        parts.push(Part::Backfill);
    }
    if wanted(Group::Groups) {
        parts.extend([Part::Groups, Part::IdleGroups]);
    }
    if wanted(Group::Txn) {
        parts.extend([Part::Transactions, Part::ProducerIds]);
    }
    let mut passes = Vec::new();
    if wanted(Group::Loads) {
        passes.extend([forth(Part::Loads), back(Part::Loads)]);
    }
    passes.extend(parts.iter().chain(&once).copied().map(forth));
    if scale.twice {
        passes.extend(parts.iter().rev().copied().map(back));
    }
    for pass in &mut passes {
        pass.contenders.retain(|who| peers.have(*who) && only.is_none_or(|only| *who == only));
    }
    passes.retain(|pass| !pass.contenders.is_empty());
    passes
}

fn forth(part: Part) -> Pass {
    let contenders = match part {
        Part::Speed => contender::ALL.to_vec(),
        _ => BOTH.to_vec(),
    };
    Pass { part, contenders }
}

fn back(part: Part) -> Pass {
    let mut pass = forth(part);
    pass.contenders.reverse();
    pass
}

/// In words, for a report.
pub fn order(passes: &[Pass]) -> String {
    let pass = |pass: &Pass| {
        let names: Vec<_> = pass.contenders.iter().map(|who| who.name()).collect();
        format!("{}: {}", pass.part, names.join(" → "))
    };
    passes.iter().map(pass).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legs(passes: &[Pass]) -> Vec<(Contender, Part)> {
        let of = |pass: &Pass| {
            let part = pass.part;
            pass.contenders.iter().map(|&who| (who, part)).collect::<Vec<_>>()
        };
        passes.iter().flat_map(of).collect()
    }

    #[test]
    fn every_part_is_measured_as_often_on_both_and_the_second_pass_goes_back() {
        let scale = Scale::full();
        let groups =
            [Group::Restart, Group::Backfill, Group::Partitions, Group::Groups, Group::Txn];
        let legs = legs(&plan(&groups, &scale, None, &Peers::default()));
        let of = |who| legs.iter().filter(|(leg, _)| *leg == who).count();
        let parts = scale.held.len() + 6;
        assert_eq!(of(Contender::Kafka), 2 * parts + scale.held_once.len());
        assert_eq!(of(Contender::Corelane), of(Contender::Kafka));
        assert_eq!(legs.first(), legs.last());
    }

    #[test]
    fn loads_alone_run_kafka_first_and_last() {
        let legs = legs(&plan(&[Group::Loads], &Scale::quick(), None, &Peers::default()));
        let (kafka, corelane) = (Contender::Kafka, Contender::Corelane);
        assert_eq!(legs, [kafka, corelane, corelane, kafka].map(|who| (who, Part::Loads)));
    }

    #[test]
    fn twins_take_part_in_what_there_is_to_reach_and_kafka_sets_the_pace() {
        let legs = legs(&plan(&[Group::Speed], &Scale::full(), None, &Peers::default()));
        let forth = contender::ALL.into_iter().filter(|who| who.target().is_some());
        let there_and_back = forth.clone().chain(forth.rev());
        let expected: Vec<_> = there_and_back.map(|who| (who, Part::Speed)).collect();
        assert_eq!(legs, expected);
        assert_eq!(legs.first(), Some(&(Contender::Kafka, Part::Speed)));
        let only = Some(Contender::KafkaFlush);
        let groups = [Group::Speed, Group::Txn];
        let alone = plan(&groups, &Scale::full(), only, &Peers::default());
        let speed = || Pass { part: Part::Speed, contenders: vec![Contender::KafkaFlush] };
        assert_eq!(alone, [speed(), speed()]);
    }
}
