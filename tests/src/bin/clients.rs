//! Runs every client family's program against one broker and counts the scenarios.
//!
//! Starts the broker (unless `--bootstrap` names one that runs), builds and runs the families one
//! after the other, repeats what failed, and ends on the line `N passed, N failed`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use corelane_tests::families::{FAMILIES, Family, Outcome, SCENARIOS, Said, TOOLS};
use corelane_tests::repository::corelane_binary;
use corelane_tests::{Broker, BrokerOptions, Error, Result, Target};

/// Run real Kafka clients against Corelane or Apache Kafka.
///
/// Example: cargo run -p corelane-tests --bin clients -- --against kafka --only java
#[derive(Parser)]
#[command(name = "clients", version)]
struct Arguments {
    /// Which broker to start.
    #[arg(long, value_enum, default_value_t = Against::Corelane)]
    against: Against,
    /// Use a broker that already runs, at HOST:PORT, instead of starting one.
    #[arg(long)]
    bootstrap: Option<String>,
    /// That broker's data directories, separated by commas; without them the scenarios that read
    /// files fail.
    #[arg(long, requires = "bootstrap", default_value = "")]
    data_dir: String,
    /// Families to run, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_parser = FAMILIES)]
    only: Vec<String>,
    /// One scenario to run in each family that has it.
    #[arg(long, value_parser = [SCENARIOS.as_slice(), TOOLS.as_slice()].concat())]
    scenario: Option<String>,
    /// A family whose toolchain is missing is a failure, not skipped.
    #[arg(long)]
    require_all: bool,
    /// A broker setting under Kafka's own name, KEY=VALUE; may be repeated.
    #[arg(long = "set", value_parser = key_value)]
    settings: Vec<(String, String)>,
    /// What Corelane's shards run on, if not the default; the binary must have it.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Leave the broker's data and log on disk.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    Corelane,
    Kafka,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut runner = match Runner::start(&arguments) {
        Ok(runner) => runner,
        Err(error) => {
            eprintln!("clients: {error}");
            println!("0 passed, 1 failed");
            return ExitCode::FAILURE;
        }
    };
    for name in FAMILIES {
        if arguments.only.is_empty() || arguments.only.iter().any(|only| only == name) {
            runner.family(&Family::named(name));
        }
    }
    runner.finish()
}

struct Runner<'a> {
    arguments: &'a Arguments,
    corelane: PathBuf,
    broker: Option<Broker>,
    passed: u32,
    /// What failed and why, said again at the end: a long run's output is often kept from there on.
    failed: Vec<String>,
    skipped: u32,
}

impl<'a> Runner<'a> {
    fn start(arguments: &'a Arguments) -> Result<Self> {
        // Scenarios on retention and compaction should not wait for minutes.
        let settings = [
            ("log.retention.check.interval.ms", "500"),
            ("log.initial.task.delay.ms", "500"),
            ("log.cleaner.backoff.ms", "300"),
            // Nor should a new group wait long for more members.
            ("group.initial.rebalance.delay.ms", "500"),
            // By the KIP-848 protocol the broker says how often members speak, and when they are dead.
            ("group.consumer.min.heartbeat.interval.ms", "500"),
            ("group.consumer.heartbeat.interval.ms", "500"),
            ("group.consumer.min.session.timeout.ms", "6000"),
            ("group.consumer.session.timeout.ms", "6000"),
        ];
        let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let corelane = corelane_binary()?;
        let broker = match &arguments.bootstrap {
            Some(_) => None,
            None => Some(Broker::start_new(BrokerOptions {
                // Scenarios move partitions between them.
                data_dirs: 2,
                flags: arguments.backend.iter().map(|name| format!("--backend={name}")).collect(),
                settings: settings.chain(arguments.settings.iter().cloned()).collect(),
                ..BrokerOptions::new(match arguments.against {
                    Against::Corelane => Target::Corelane,
                    Against::Kafka => Target::ApacheKafka,
                })
            })?),
        };
        Ok(Self { arguments, corelane, broker, passed: 0, failed: Vec::new(), skipped: 0 })
    }

    fn family(&mut self, family: &Family) {
        let began = Instant::now();
        let listed = match self.build(family) {
            Some(listed) => listed,
            None => return,
        };
        let built = began.elapsed();
        let only = self.arguments.scenario.as_deref();
        let expected: Vec<String> =
            listed.into_iter().filter(|name| only.is_none_or(|only| only == name)).collect();
        if expected.is_empty() {
            return;
        }
        let (bootstrap, data_dir) = self.broker_address();
        let began = Instant::now();
        let broker = (bootstrap.as_str(), data_dir.as_str());
        let corelane = self.corelane.clone();
        let ran = family.run(broker, &corelane, only, &expected, |said| match said {
            Said::Outcome(outcome) => self.count(&family.name, &outcome),
            Said::KillBroker => self.kill_broker(&family.name),
        });
        if let Err(error) = ran {
            self.fail(&family.name, &error.to_string());
        }
        self.check_broker(&family.name);
        let ran = began.elapsed().as_secs_f32();
        println!("# {}: built in {:.1} s, ran {ran:.1} s", family.name, built.as_secs_f32());
    }

    /// The scenarios of a family, or none if it cannot run at all, which is counted here.
    fn build(&mut self, family: &Family) -> Option<Vec<String>> {
        if !family.exists() {
            self.fail(&family.name, "tests/clients has no such program");
            return None;
        }
        match family.build() {
            Ok(listed) => {
                let known = [SCENARIOS.as_slice(), TOOLS.as_slice()].concat();
                if let Some(odd) = listed.iter().find(|name| !known.contains(&name.as_str())) {
                    self.fail(&family.name, &format!("lists {odd}, which is no scenario"));
                }
                Some(listed)
            }
            Err(Error::Missing(remedy)) if !self.arguments.require_all => {
                self.skipped += 1;
                println!("skipped   {}: {remedy}", family.name);
                None
            }
            Err(error) => {
                self.fail(&family.name, &error.to_string());
                None
            }
        }
    }

    fn broker_address(&self) -> (String, String) {
        match &self.broker {
            Some(broker) => {
                let dirs = broker.data_dirs();
                let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
                (broker.bootstrap(), dirs.join(","))
            }
            None => (
                self.arguments.bootstrap.clone().unwrap_or_default(),
                self.arguments.data_dir.clone(),
            ),
        }
    }

    /// SIGKILL, and a new start on what is on disk.
    fn kill_broker(&mut self, family: &str) {
        let Some(broker) = &mut self.broker else {
            return self.fail(family, "only a broker that was started here can be killed");
        };
        broker.kill();
        if let Err(error) = broker.start() {
            self.fail(family, &format!("the killed broker does not start again: {error}"));
        }
    }

    /// A broker that died fails the family it died under, and is started again for the next.
    fn check_broker(&mut self, family: &str) {
        let Some(broker) = &mut self.broker else { return };
        if broker.alive() {
            return;
        }
        let tail = broker.log_tail();
        let again = broker.start();
        self.fail(family, &format!("the broker died; its last lines:\n{tail}"));
        if let Err(error) = again {
            self.fail(family, &format!("the broker does not start again: {error}"));
        }
    }

    fn count(&mut self, family: &str, outcome: &Outcome) {
        match &outcome.failure {
            None => {
                self.passed += 1;
                println!("ok        {family} {}", outcome.scenario);
            }
            Some(reason) => self.fail(&format!("{family} {}", outcome.scenario), reason),
        }
    }

    fn fail(&mut self, what: &str, reason: &str) {
        println!("NOT OK    {what}: {reason}");
        self.failed.push(format!("FAILED    {what}: {reason}"));
    }

    fn finish(mut self) -> ExitCode {
        if let Some(mut broker) = self.broker.take() {
            match broker.stop() {
                Ok(Some(status)) if clean(self.arguments.against, status) => {}
                Ok(status) => self.fail("broker", &format!("ended uncleanly: {status:?}")),
                Err(error) => self.fail("broker", &error.to_string()),
            }
            if self.arguments.keep {
                println!("# kept {}", broker.keep().display());
            }
        }
        let skipped = match self.skipped {
            0 => String::new(),
            families => format!(", {families} skipped"),
        };
        for failure in &self.failed {
            println!("{failure}");
        }
        println!("{} passed, {} failed{skipped}", self.passed, self.failed.len());
        if self.failed.is_empty() && self.passed > 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// A JVM that ends on SIGTERM reports 143; Corelane's clean shutdown is 0.
fn clean(against: Against, status: std::process::ExitStatus) -> bool {
    match against {
        Against::Corelane => status.success(),
        Against::Kafka => status.code() == Some(143) || status.success(),
    }
}

fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text}: write KEY=VALUE"))
}
