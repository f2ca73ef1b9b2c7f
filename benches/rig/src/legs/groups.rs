//! Consumer groups: a member's way to its first record, rebalances of many members, commits; and on
//! a broker of its own, what thousands of idle groups cost and how soon they are back after a
//! restart.

use std::thread;
use std::time::{Duration, Instant};

use corelane_tests::{Broker, BrokerOptions};

use super::loads::load;
use super::{Leg, MEBIBYTE, MEMORY, create, on, options, pid};
use crate::cluster::{self, Topic};
use crate::error::Result;
use crate::groups::crowd::Rebalances;
use crate::groups::idle::Many;
use crate::groups::{Group, Protocol, commits, first_record, set_heartbeat_interval};
use crate::payload::Batch;
use crate::results::{
    COMMITS, CPU_MICROS, CPU_MILLIS, KIBIBYTES, MEBIBYTES, OTHER_CORES, SECONDS, Section,
};
use crate::sample::Windows;
use crate::scale::{GroupScale, MANY};
use crate::{disk, procfs, produce};

/// Equal on both. Kafka's own default lets a new group wait for 3 s; a default is no figure.
pub const GROUP_SETTINGS: [(&str, &str); 3] = [
    ("group.initial.rebalance.delay.ms", "0"),
    // For the group whose members heartbeat more often than the default, by its own setting.
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "5000"),
];
const PROTOCOLS: [Protocol; 2] = [Protocol::Classic, Protocol::Consumer];
/// A consumer's default, heartbeat.interval.ms; by the new protocol a broker's, of 5 s.
const CLASSIC_INTERVAL: Duration = Duration::from_secs(3);
const CONSUMER_INTERVAL: Duration = Duration::from_secs(5);
/// Of both protocols: so often that the broker's own work shows.
const SHORT_INTERVAL: Duration = Duration::from_millis(200);
/// Partitions that an idle group has offsets of.
const IDLE_PARTITIONS: i32 = 4;
/// Enough that every partition of the internal topic has some.
const FIRST_GROUPS: usize = 500;
/// What there is to read for a first record.
const RECORDS_BYTES: u64 = 1 << 20;

impl Leg<'_> {
    pub fn groups(&mut self) -> Result<()> {
        on(self.target, self.group_options(), |broker| self.lives(broker))
    }

    pub fn idle_groups(&mut self) -> Result<()> {
        on(self.target, self.group_options(), |broker| self.idle_and_back(broker))
    }

    fn group_options(&self) -> BrokerOptions {
        let options = options(self.target, MEMORY);
        GROUP_SETTINGS.into_iter().fold(options, |options, (key, value)| options.with(key, value))
    }

    fn lives(&mut self, broker: &Broker) -> Result<()> {
        let scale = &self.scale.groups;
        let topic = create(broker, "read", MANY, &[])?;
        let batch = Batch::build(100, 1)?;
        produce::run_volume(&load(&topic, &batch), RECORDS_BYTES)?;
        for protocol in PROTOCOLS {
            self.say(&format!("{protocol}: from join to first record"));
            self.first_records(broker, protocol, &topic)?;
        }
        self.say("offset commits");
        self.commits(broker, &topic)?;
        let topic = create(broker, "shared", scale.partitions, &[])?;
        for protocol in PROTOCOLS {
            let usual = match protocol {
                Protocol::Classic => CLASSIC_INTERVAL,
                Protocol::Consumer => CONSUMER_INTERVAL,
            };
            for (interval, rounds) in
                [(SHORT_INTERVAL, scale.short_rounds), (usual, scale.usual_rounds)]
            {
                if rounds > 0 {
                    self.rebalances(broker, protocol, &topic, (interval, rounds))?;
                }
            }
        }
        Ok(())
    }

    fn first_records(&mut self, broker: &Broker, protocol: Protocol, topic: &Topic) -> Result<()> {
        let groups = |name: &str, count: usize| -> Result<Vec<Group>> {
            let names = (0..count).map(|number| format!("{name}-{protocol}-{number}"));
            names.map(|name| Group::find(broker.address(), &name, topic)).collect()
        };
        let GroupScale { unmeasured_joins, joins, .. } = self.scale.groups;
        first_record::run(&groups("warm", unmeasured_joins)?, protocol)?;
        let latencies = first_record::run(&groups("join", joins)?, protocol)?;
        let row = format!("{protocol}: from join to first record, alone in a new group");
        self.add_latencies(Section::Groups, &row, &latencies);
        Ok(())
    }

    fn commits(&mut self, broker: &Broker, topic: &Topic) -> Result<()> {
        let many = self.scale.groups.commit_connections;
        let cases = [
            ("simple consumers", None, many, 1),
            ("simple consumer", None, 1, 1),
            ("simple consumers", None, many, MANY),
            ("classic members", Some(Protocol::Classic), many, 1),
            ("KIP-848 members", Some(Protocol::Consumer), many, 1),
        ];
        let groups = |case: &str, connections: usize| -> Result<Vec<Group>> {
            let names = (0..connections).map(|number| format!("commit-{case}-{number}"));
            names.map(|name| Group::find(broker.address(), &name, topic)).collect()
        };
        let unmeasured = groups("warm", many)?;
        let load = commits::Load { groups: &unmeasured, member: None, partitions: 1 };
        let warmup = self.scale.groups.unmeasured_commits;
        let windows = Windows { warmup, length: Duration::ZERO, count: 0 };
        commits::run_windows(&load, pid(broker)?, &windows)?;
        for (number, (who, member, connections, partitions)) in cases.into_iter().enumerate() {
            disk::drain();
            let groups = groups(&number.to_string(), connections)?;
            let load = commits::Load { groups: &groups, member, partitions };
            let windows = &self.scale.groups.commit_windows;
            let samples = commits::run_windows(&load, pid(broker)?, windows)?;
            let plural = |count: usize, what: &str| match count {
                1 => format!("1 {what}"),
                count => format!("{count} {what}s"),
            };
            let row = format!(
                "commits of {connections} {who}, one on the way each, {} a commit",
                plural(usize::try_from(partitions).unwrap_or(0), "partition"),
            );
            for sample in samples {
                self.add(Section::Groups, &row, COMMITS, sample.records_per_second());
                let cpu = sample.broker_cpu_seconds * 1e6 / sample.records;
                self.add(Section::Groups, &row, CPU_MICROS, cpu);
                self.add(Section::Groups, &row, OTHER_CORES, sample.other_cores());
            }
        }
        Ok(())
    }

    fn rebalances(
        &mut self,
        broker: &Broker,
        protocol: Protocol,
        topic: &Topic,
        (interval, rounds): (Duration, usize),
    ) -> Result<()> {
        let members = self.scale.groups.members;
        let millis = interval.as_millis();
        let row = format!(
            "{protocol}, {members} members, {} partitions, heartbeats every {millis} ms",
            { topic.leaders.len() }
        );
        self.say(&row);
        disk::drain();
        let group = Group::find(broker.address(), &format!("crowd-{protocol}-{millis}"), topic)?;
        if protocol == Protocol::Consumer {
            set_heartbeat_interval(broker.address(), &group.name, interval)?;
        }
        let broker = pid(broker)?;
        let plan = Rebalances { group: &group, protocol, members, interval, rounds, broker };
        let figures = plan.run()?;
        let mut add = |what: &str, measure, value| {
            self.add(Section::Groups, &format!("{row}: {what}"), measure, value);
        };
        for time in figures.joins {
            add("one joins, until all have theirs", SECONDS, time.as_secs_f64());
        }
        for time in figures.leaves {
            add("one leaves, until all have theirs", SECONDS, time.as_secs_f64());
        }
        add("a rebalance", CPU_MILLIS, figures.cpu_seconds * 1e3);
        Ok(())
    }

    fn idle_and_back(&mut self, broker: &mut Broker) -> Result<()> {
        let GroupScale { idle_groups, idle, .. } = self.scale.groups;
        let topic = create(broker, "idle", IDLE_PARTITIONS, &[])?;
        // The internal topic and what it needs is no part of a group's cost.
        Group::find(broker.address(), "first", &topic)?;
        let first = Many::new("first", FIRST_GROUPS, &topic);
        first.make(broker.address())?;
        thread::sleep(idle);
        let before = procfs::memory(pid(broker)?)?.now;
        self.say(&format!("making {idle_groups} groups"));
        let many = Many::new("idle", idle_groups, &topic);
        many.make(broker.address())?;
        thread::sleep(idle);
        let grown = procfs::memory(pid(broker)?)?.now - before;
        let row =
            format!("memory of {idle_groups} idle groups with {IDLE_PARTITIONS} offsets each");
        self.add(Section::Groups, &row, MEBIBYTES, grown / MEBIBYTE);
        self.add(Section::Groups, &row, KIBIBYTES, grown / idle_groups as f64 / 1024.0);
        let asked = many.await_answers(broker.address(), Instant::now())?;
        let row = format!("asking {idle_groups} idle groups for their offsets, nothing to load");
        self.add(Section::Groups, &row, SECONDS, asked.all.as_secs_f64());

        self.say("restart after SIGKILL");
        broker.kill();
        self.load_groups(broker, &many, "SIGKILL")?;
        self.say("clean stop and restart");
        broker.stop()?;
        self.load_groups(broker, &many, "a clean stop")
    }

    fn load_groups(&mut self, broker: &mut Broker, many: &Many<'_>, end: &str) -> Result<()> {
        let launched = broker.launch()?;
        let reached = many.await_answers(broker.address(), launched)?;
        let row = format!("start after {end} with {} idle groups", many.names.len());
        let mut add = |what: &str, time: Duration| {
            self.add(Section::Groups, &format!("{row}: {what}"), SECONDS, time.as_secs_f64());
        };
        add("a first group has told its offsets", reached.first);
        add("every group has", reached.all);
        add("the same, from the broker's first answer on", reached.all - reached.answered);
        // What comes next must not find the broker still starting.
        let partitions = i32::try_from(many.topic.leaders.len()).unwrap_or(i32::MAX);
        cluster::await_leaders(broker.address(), &many.topic.name, partitions).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use corelane_tests::Target;

    use super::*;
    use crate::results::{P50, Results};
    use crate::scale::Scale;

    /// Every step of the legs against Corelane, with a handful of everything.
    #[test]
    fn the_legs_measure_everything_of_a_small_crowd() {
        let scale = Scale { groups: GroupScale::smoke(), ..Scale::quick() };
        let mut results = Results::default();
        let mut leg = Leg { target: Target::Corelane, scale: &scale, results: &mut results };
        leg.groups().unwrap();
        leg.idle_groups().unwrap();
        let has = |part: &str, measure| {
            let line = results.lines.iter().find(|l| l.row.contains(part) && l.measure == measure);
            let line = line.unwrap_or_else(|| panic!("no line {part}"));
            assert!(line.of(Target::Corelane).iter().all(|value| value.is_finite()), "{line:?}");
            line.of(Target::Corelane).len()
        };
        for protocol in PROTOCOLS {
            assert_eq!(has(&format!("{protocol}: from join"), P50), 1);
            let rounds = scale.groups.short_rounds;
            for what in ["one joins", "one leaves"] {
                let row = format!(
                    "{protocol}, 5 members, 23 partitions, heartbeats every 200 ms: {what}"
                );
                assert_eq!(has(&row, SECONDS), rounds);
            }
        }
        let windows = scale.groups.commit_windows.count;
        assert_eq!(has("commits of 3 simple consumers", COMMITS), windows);
        assert_eq!(has("commits of 3 KIP-848 members", CPU_MICROS), windows);
        assert_eq!(has("memory of 60 idle groups", MEBIBYTES), 1);
        assert_eq!(has("asking 60 idle groups", SECONDS), 1);
        assert_eq!(has("start after SIGKILL with 60 idle groups: every", SECONDS), 1);
        assert_eq!(has("start after a clean stop with 60 idle groups: every", SECONDS), 1);
        assert!(results.failures.is_empty(), "{:?}", results.failures);
    }
}
