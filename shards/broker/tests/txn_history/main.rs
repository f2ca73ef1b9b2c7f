//! Transactions in the simulator, held against what must be true of any history of them: producers of both
//! protocols, zombies, consume-transform-produce loops, lost answers, late copies, timeouts, moving
//! leaders, and a broker that dies at any moment.
//!
//! `history` is what clients did and were told, `check` the rules, `bad` shows that each rule finds what it
//! is for. `CORELANE_SEEDS=n` runs more seeds, `CORELANE_SEED=n` runs one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bad;
mod calls;
mod check;
mod clients;
mod end;
mod history;
mod ids;
mod producer;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;
mod trouble;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Choices as Dice, Crash, Outcome, World, with_faults};
use reactor::{Either, race};
use support::{BASE_PORT, Client, Shards, start_shards};

use calls::{INPUT, SHARDS, TIMEOUT_MS, TOPIC};
use clients::{Everything, PARTITIONS, Shared};
use end::Reader;
use history::End;
use trouble::Trouble;

const DATA_DIR: &str = "/data";
const SEEDS: u64 = 24;
/// Seeds that have failed once.
const FOUND: [u64; 0] = [];
/// Transactional ids; instances of each come one after the other, or beside each other.
const IDS: [&str; 3] = ["one", "two", "consumes"];
/// Transactions, and their index, go over the ends of segments.
const SMALL_SEGMENTS: [(&str, &str); 1] = [("internal.segment.bytes", "4000")];
/// Instances that are there at once.
const AT_ONCE: usize = 5;
/// Runs of the broker; all but the last one crash.
const RUNS: usize = 3;
/// File operations before a crash that does not come.
const NEVER: u64 = 1 << 40;
/// How long clients go on in the last run.
const LAST_RUN: Duration = Duration::from_millis(2_500);

/// What a seed stands for.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// With a power cut every topic is synced: what is acknowledged is on the device.
    crash: Crash,
    trouble: Trouble,
}

impl Plan {
    fn of(dice: &mut Dice) -> Plan {
        let crash = if dice.one_in(3) { Crash::Power } else { Crash::Process };
        Plan { crash, trouble: Trouble::of(dice) }
    }

    fn settings(self) -> Vec<&'static str> {
        let mut settings =
            vec!["transaction.state.log.num.partitions=3", "offsets.topic.num.partitions=2"];
        if self.crash == Crash::Power {
            settings.push("log.flush.interval.messages=1");
        }
        settings
    }
}

async fn start(plan: Plan) -> Shards {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut shards = start_shards(SHARDS, BASE_PORT, DATA_DIR, &plan.settings());
    shards.ready().await;
    shards
}

/// The topics, and those of the coordinators.
async fn prepare(client: &mut Client) {
    for (topic, partitions) in [(TOPIC, PARTITIONS as i32), (INPUT, 1)] {
        let created = client.create_topic(topic, partitions, &SMALL_SEGMENTS).await.unwrap();
        assert!(created == 0 || created == 36, "{topic}: {created}");
    }
    for (key_type, key) in [(0, calls::GROUP), (1, IDS[0])] {
        while end::coordinator(client, key_type, key).await.unwrap().is_none() {
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// One run of the broker with its clients. The last one ends with a look at all there is; others go on until
/// they crash. None if a shard has ended, as one does whose metadata cannot be written.
async fn life(
    everything: Everything,
    reader: Rc<RefCell<Reader>>,
    plan: Plan,
    last: bool,
) -> Option<End> {
    with_faults(|faults| faults.disk.eio_once = None);
    let shards = start(plan).await;
    let mut client = Client::connect(shards.addresses[0]).await.unwrap();
    prepare(&mut client).await;
    if !last {
        let ops = 30 + everything.borrow_mut().dice.below(400);
        reactor::sim::crash_after(ops, plan.crash);
    }
    let ended = trouble::shards_end(shards.tasks);
    match race(transact(everything, reader, plan, last), ended).await {
        Either::Left(end) => Some(end),
        Either::Right(()) => None,
    }
}

async fn transact(
    everything: Everything,
    reader: Rc<RefCell<Reader>>,
    plan: Plan,
    last: bool,
) -> End {
    let over = reactor::now() + LAST_RUN;
    let seed = everything.borrow_mut().dice.roll();
    let troubles = reactor::spawn(trouble::make(plan.trouble, Dice(seed)));
    let reading = reactor::spawn(end::read_on(everything.clone(), reader.clone()));
    let mut tasks: Vec<reactor::Task<()>> = Vec::new();
    for at in 0..everything.borrow().clients.len() {
        tasks.push(reactor::spawn(clients::live(everything.clone(), at)));
    }
    while !last || reactor::now() < over {
        add_instances(&everything, &mut tasks);
        reactor::sleep(Duration::from_millis(20)).await;
    }
    drop(troubles);
    everything.borrow_mut().is_over = true;
    for task in tasks {
        task.await;
    }
    // Whatever is open times out; whoever was late has come by now.
    reactor::sleep(Duration::from_millis(3 * TIMEOUT_MS as u64)).await;
    reader.borrow_mut().stops = true;
    reading.await;
    let read_up_to = reader.borrow().positions;
    end::look(read_up_to).await
}

fn add_instances(everything: &Everything, tasks: &mut Vec<reactor::Task<()>>) {
    let mut shared = everything.borrow_mut();
    let there = shared.clients.iter().filter(|client| !client.is_gone).count();
    if there < AT_ONCE && (there < IDS.len() || shared.dice.one_in(8)) {
        let id = IDS[shared.dice.below(IDS.len() as u64) as usize];
        let at = shared.add_instance(id);
        tasks.push(reactor::spawn(clients::live(everything.clone(), at)));
    }
}

/// What became of the transactions of a seed, for assertions that enough happened.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    committed: usize,
    aborted: usize,
    consumed: i64,
    /// Copies that came when their epoch was an old one.
    late: usize,
}

/// All runs of one seed.
fn history(seed: u64, verbose: bool) -> Tally {
    let mut dice = Dice(seed);
    let mut plan = Plan::of(&mut dice);
    let everything: Everything = Rc::new(RefCell::new(Shared::new(dice.roll())));
    let reader = Rc::new(RefCell::new(Reader::default()));
    let mut world = World::new(seed);
    world.limit_time(Duration::from_secs(3_600));
    let end = (0..).find_map(|run| {
        let last = run + 1 >= RUNS;
        let (clients, read) = (everything.clone(), reader.clone());
        // In place of what a run that has not crashed may have left.
        world.crash_after(NEVER, plan.crash);
        match world.run(move || life(clients, read, plan, last)) {
            Outcome::Finished(Some(end)) if last => Some(end),
            Outcome::Finished(None) if plan.trouble.fails => {
                plan.trouble.fails = false;
                None
            }
            Outcome::Crashed(_) if !last => None,
            other => panic!("run {run} of {plan:?}: {other:?}"),
        }
    });
    let end = end.unwrap();
    let shared = everything.borrow();
    let found = check::check(&shared.history, &end);
    if verbose {
        eprintln!("{plan:?}, refused {:?}", shared.refused);
        for (at, event) in shared.history.iter().enumerate() {
            eprintln!("{at}: {event:?}");
        }
        eprintln!("{end:#?}");
    }
    assert!(found.is_empty(), "{plan:?}: {found:#?}");
    let count = |commit| {
        let told = |event: &&history::Event| match event {
            history::Event::Told { what, answer: Ok(_), .. } => {
                *what == history::What::End { commit }
            }
            _ => false,
        };
        shared.history.iter().filter(told).count()
    };
    Tally {
        committed: count(true),
        aborted: count(false),
        consumed: end.position,
        late: shared.late,
    }
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("CORELANE_SEED"), number("CORELANE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => FOUND.into_iter().chain(0..count.unwrap_or(SEEDS)).collect(),
    }
}

#[test]
fn no_history_of_transactions_has_an_anomaly() {
    let seeds = seeds();
    let mut all = Tally::default();
    for seed in &seeds {
        let verbose = seeds.len() == 1;
        let ran = std::panic::catch_unwind(|| history(*seed, verbose));
        let Ok(tally) = ran else {
            panic!("seed {seed} failed; run it alone with CORELANE_SEED={seed}");
        };
        all.committed += tally.committed;
        all.aborted += tally.aborted;
        all.consumed += tally.consumed;
        all.late += tally.late;
    }
    eprintln!("{} seeds: {all:?}", seeds.len());
    if seeds.len() >= SEEDS as usize {
        assert!(all.committed > seeds.len() * 10 && all.aborted > seeds.len(), "{all:?}");
        assert!(all.consumed > seeds.len() as i64, "{all:?}");
        assert!(all.late > seeds.len(), "{all:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_tally() {
    for seed in [3, 4] {
        let (one, other) = (history(seed, false), history(seed, false));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}");
    }
}
