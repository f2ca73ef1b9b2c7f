//! A comparison's figures as a table for people, with the conditions they were taken under.

use std::fmt::Write as _;

use crate::contender::{self, Contender};
use crate::disk::Ceiling;
use crate::expected;
use crate::legs::groups::GROUP_SETTINGS;
use crate::legs::{KAFKA_JAVA, MEMORY, SETTINGS};
use crate::peers::Peers;
use crate::procfs::{self, Machine};
use crate::report::row::number;
use crate::results::{Line, Results, Section, median};
use crate::scale::{CONNECTIONS, IN_FLIGHT, Scale};

#[derive(Debug)]
pub struct Conditions {
    pub date: String,
    /// UTC, RFC 3339.
    pub started: String,
    pub commit: String,
    pub machine: Machine,
    /// That the brokers inherit.
    pub limits: String,
    pub java: String,
    pub ceiling: Ceiling,
    /// Of the legs, in words.
    pub order: String,
    /// What was asked for and could not be had, with the reason.
    pub left_out: Vec<String>,
    pub peers: Peers,
    pub legs: Vec<LegRun>,
}

/// A leg that was run, with the machine's load averages around it.
#[derive(Debug)]
pub struct LegRun {
    pub broker: &'static str,
    pub part: String,
    pub seconds: f64,
    pub load_before: String,
    pub load_after: String,
}

/// Title, and what an acknowledgement or a figure means on each broker.
pub fn heading(section: Section) -> (&'static str, &'static str) {
    match section {
        Section::Process => (
            "Starting and memory",
            "A clean start follows a clean stop. Memory is resident memory of the process; Kafka's \
             page cache is not in it, Corelane's own cache is.",
        ),
        Section::Produce => (
            "Produce, acks=all, default durability",
            "Acknowledged means: on Kafka, copied to the page cache (a crash of the machine loses \
             it); on Corelane, written to the device by direct I/O (the device's own cache is not \
             flushed). A crash of the process loses nothing on either. Kafka's writing to the \
             device goes on after the acknowledgement: see \"sync afterwards\".",
        ),
        Section::Synced => (
            "Produce, acks=all, flush.messages=1",
            "Acknowledged means on both: on the device and its cache flushed. Kafka flushes once a \
             request, Corelane once for all requests that arrived meanwhile.",
        ),
        Section::Consume => (
            "Consume",
            "One fetch on the way a connection, a consumer's default limits. Kafka sends from the \
             page cache, which holds what was just written; Corelane from its own cache, else by \
             direct reads.",
        ),
        Section::Latency => (
            "Open-loop produce latency, acks=all, default durability",
            "From the moment a request was due to its answer. Acknowledged means the same as under \
             default durability above.",
        ),
        Section::Restart => (
            "Restart",
            "Seconds from the start of the process. Every partition has then accepted a record and \
             given records from its start, and ends where it has to. The broker was killed right \
             after the last acknowledgement, and what the page cache held then is still in it: it \
             helps Kafka, Corelane reads past it. \"MiB read\" counts both ways, and for Kafka also \
             its jars.",
        ),
        Section::Backfill => (
            "Latency beside backfill readers",
            "Both from the moment a request was due: produce until its acknowledgement, tail fetch \
             until a consumer at the end of the log has the batch. The readers go through a log four \
             times as large as Kafka's heap or Corelane's memory, over and over. The page cache is in \
             neither budget and was not limited: the log's pages are dropped from it before each case \
             and all along, for both brokers (posix_fadvise every quarter of a second). The readers' \
             threads have the lowest priority.",
        ),
        Section::Partitions => (
            "Many partitions",
            "Requests of at most 5,000 partitions, since Kafka takes no more than 10,000 records a \
             request: a topic of 10,000 is created and then grown. Kafka's part begins with a virtual \
             machine that has just started, and its heap grows as it is used, so its memory of one \
             partition is rough. Latency: the same requests at the same rate, each to the next \
             partition, after two such requests to every partition.",
        ),
        Section::Groups => (
            "Consumer groups",
            "Members are threads of the client that speak the protocol, without reading (but for the \
             first record). A rebalance is timed from the first word of the one that comes, or the \
             last of the one that goes, until every partition has exactly one owner and all members \
             have their even share; members learn of it by heartbeats only, so the interval bounds it \
             from below on both brokers, and a short one shows more of the broker's own work. It \
             begins somewhere in the interval, at the same places for both. With the new protocol \
             a broker computes an assignment at most once a second \
             (group.consumer.assignment.interval.ms, the default of both). A commit is \
             acknowledged as a produce under default durability is, and each is for a group of its \
             own, at members a group of one. An idle group has offsets and no members. It has told \
             its offsets when OffsetFetch gives what it had committed, and not \
             COORDINATOR_LOAD_IN_PROGRESS; its start is that of the process. Memory is growth of the \
             process; Kafka's heap makes its figure rough.",
        ),
        Section::Transactions => (
            "Transactions and idempotence",
            "A transaction is one batch to one of twelve partitions, then the commit; acknowledged as a \
             produce under default durability is. A closed loop begins the next one when the commit is \
             answered, which is before its markers are written: the next one may be answered to try \
             again, which the client does after 20 ms on both brokers. In the open loop a transaction is \
             timed from the moment it was due. Produce with and without idempotence is the same client, \
             which stamps every batch either way. A producer id of the many has written one batch; sent \
             again, before and after the restarts, it has to be answered with the offset of the first \
             time. What the ids take is the growth beyond that of as many batches of few producers: of \
             resident memory on Corelane, on Kafka of the live heap after a full collection, since its \
             resident memory follows the garbage.",
        ),
        Section::Speed => (
            "What Corelane has to reach",
            "Closed-loop rows say how much goes through. \"Small keyed batches\" is as many connections \
             as producers, dealt out evenly over the broker's nodes, with five requests on the way on \
             each, whatever the broker. Open loops run at half of what Kafka took in the first leg of \
             this run, and brokers that flush at half of what Kafka's twin took; both latencies run \
             from the moment a request was due. \"One log\" stands beside what the disk takes by itself, \
             sequentially, with as much on the way, measured before and after; Corelane has one shard \
             there. Peak memory is resident memory of the process since its start, without Kafka's page \
             cache and with Corelane's own cache. A broker that flushes is a broker of its own with \
             log.flush.interval.messages=1: an acknowledged batch is on the device and its cache \
             flushed. NATS JetStream has no batches: each record is a message that is acknowledged by \
             itself, with 1,000 on the way on each connection, and a partition is a stream; its open \
             loops, like those of Tansu, run at half of its own maximum. What an acknowledgement \
             means stands under \"durability\" below.",
        ),
    }
}

const SECTIONS: [Section; 11] = [
    Section::Speed,
    Section::Process,
    Section::Produce,
    Section::Synced,
    Section::Consume,
    Section::Latency,
    Section::Restart,
    Section::Backfill,
    Section::Partitions,
    Section::Groups,
    Section::Transactions,
];

pub fn table(results: &Results, conditions: &Conditions, scale: &Scale) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "# Corelane beside Apache Kafka 4.4.0, {} ({} run)\n\nMedians over the legs A B B A \
         (A = Kafka; one figure: A B), lowest and highest in brackets. MB and GB are 10^6 and 10^9 bytes of record \
         values. \"Cores busy elsewhere\" is work of neither broker nor client: kernel writers and \
         other processes.\n",
        conditions.date, scale.name
    );
    for section in SECTIONS {
        let lines = of_section(results, section);
        if lines.is_empty() {
            continue;
        }
        let (title, meaning) = heading(section);
        let _ = writeln!(text, "## {title}\n\n{meaning}\n");
        rows(&mut text, &lines);
    }
    let _ = writeln!(
        text,
        "## Expected\n\n{}",
        expected::table(results, conditions.ceiling.read_megabytes_per_second)
    );
    let _ = writeln!(text, "## Conditions\n\n{}", describe(conditions, scale, &results.failures));
    text
}

/// A column for each that has figures here.
fn rows(text: &mut String, lines: &[&Line]) {
    let measured = |who: &Contender| lines.iter().any(|line| !line.of(*who).is_empty());
    let columns: Vec<Contender> = contender::ALL.into_iter().filter(measured).collect();
    let names: Vec<&str> = columns.iter().map(|who| who.name()).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| what | measure | {} | Corelane is |", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}---:|", "---:|".repeat(columns.len()));
    let mut last = "";
    for line in lines {
        let row = if line.row == last { "" } else { line.row.as_str() };
        last = &line.row;
        let figures: Vec<String> = columns.iter().map(|who| figures(line.of(*who))).collect();
        let figures = figures.join(" | ");
        let name = line.measure.name;
        let _ = writeln!(text, "| {row} | {name} | {figures} | {} |", verdicts(line));
    }
    text.push('\n');
}

/// Of the one pair that there is, or of each with the names of both.
fn verdicts(line: &Line) -> String {
    let times = |&(first, second): &(Contender, Contender)| {
        Some((first, second, line.times_better_than(first, second)?))
    };
    let pairs: Vec<_> = contender::PAIRS.iter().filter_map(times).collect();
    let words = pairs.iter().map(|&(first, second, times)| match pairs.as_slice() {
        [(Contender::Kafka, ..)] => verdict(times),
        _ => format!("{} beside {}: {}", second.name(), first.name(), verdict(times)),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Lines of one row side by side, though only one broker may have some of its measures.
fn of_section(results: &Results, section: Section) -> Vec<&Line> {
    let mut lines: Vec<&Line> = results.lines.iter().filter(|l| l.section == section).collect();
    let firsts = lines.clone();
    lines.sort_by_key(|line| firsts.iter().position(|first| first.row == line.row));
    lines
}

fn figures(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values.len() {
        1 => number(middle),
        _ => format!("**{}** ({}–{})", number(middle), number(low), number(high)),
    }
}

fn verdict(times_better: f64) -> String {
    match times_better {
        times if times >= 1.0 => format!("{}× better", number(times)),
        times => format!("{}× worse", number(1.0 / times)),
    }
}

fn describe(c: &Conditions, scale: &Scale, failures: &[String]) -> String {
    let machine = &c.machine;
    let mut text = format!(
        "- commit {}; {}, {} cores shared by broker and client, {:.1} GiB memory; Linux {}\n\
         - data on {}\n\
         - the disk alone, same file system, same day: {:.0} MB/s (512 KiB direct writes, 4 at a \
         time) and {:.0} MB/s (1 MiB direct reads, likewise); 4 KiB synced write {:.2} ms p50, {:.2} ms p99\n\
         - both brokers: replication factor 1, {}, otherwise their defaults; for consumer groups {}\n\
         - Kafka: KRaft, one process, log level warn; {} with a heap of {MEMORY} ({} beside backfill \
         readers), {}\n\
         - Corelane: --shards {}, --memory {MEMORY} ({} beside backfill readers)\n\
         - both: at most {}\n\
         - client: {CONNECTIONS} connections (1 where there is 1 partition), {IN_FLIGHT} requests on \
         the way on each, one uncompressed batch a request, no idempotence but where it is said; Produce v13, Fetch v17\n",
        c.commit,
        machine.processor,
        machine.cores,
        machine.memory_bytes / f64::from(1 << 30),
        machine.kernel,
        machine.file_system,
        c.ceiling.large_megabytes_per_second,
        c.ceiling.read_megabytes_per_second,
        c.ceiling.small_synced_p50_micros / 1e3,
        c.ceiling.small_synced_p99_micros / 1e3,
        shown(&SETTINGS),
        shown(&GROUP_SETTINGS),
        c.java,
        scale.backfill_memory,
        KAFKA_JAVA.join(" "),
        machine.cores,
        scale.backfill_memory,
        c.limits,
    );
    let w = &scale.produce_windows;
    let _ = writeln!(
        text,
        "- each leg: a new broker process on an empty directory; {:?} of load before throughput is \
         measured; then {} windows of {:?} after {:?} for each produce row",
        scale.exercise, w.count, w.length, w.warmup
    );
    let _ = writeln!(text, "- cores: {}", procfs::cores_allowed());
    let _ = writeln!(text, "- order of the legs within a part: {}", c.order);
    for who in contender::ALL {
        let _ = writeln!(text, "- durability of {} by default: {}", who.name(), who.durability());
    }
    for left_out in &c.left_out {
        let _ = writeln!(text, "- **left out**: {left_out}");
    }
    for failure in failures {
        let _ = writeln!(text, "- **failed**: {failure}");
    }
    for LegRun { broker, part, seconds, load_before, load_after } in &c.legs {
        let _ = writeln!(
            text,
            "- a leg of {seconds:.0} s, {broker}, {part}: load averages {load_before} → {load_after}"
        );
    }
    text
}

fn shown(settings: &[(&str, &str)]) -> String {
    let settings: Vec<_> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    settings.join(", ")
}

#[cfg(test)]
mod tests {
    use corelane_tests::Target;

    use super::*;
    use crate::results::{SCANNED, SECONDS};

    #[test]
    fn a_measure_of_one_broker_joins_its_row() {
        let mut results = Results::default();
        let mut add = |target, row, measure| {
            results.add(target, Section::Restart, row, measure, 1.0);
        };
        add(Target::ApacheKafka, "a", SECONDS);
        add(Target::ApacheKafka, "b", SECONDS);
        add(Target::Corelane, "a", SCANNED);
        let lines = of_section(&results, Section::Restart);
        let rows: Vec<&str> = lines.iter().map(|line| line.row.as_str()).collect();
        assert_eq!(rows, ["a", "a", "b"]);
    }

    #[test]
    fn figures_are_short_and_show_their_spread() {
        assert_eq!(figures(&[]), "-");
        assert_eq!(figures(&[0.01234]), "0.012");
        assert_eq!(figures(&[300.0, 100.0, 200.4]), "**200** (100–300)");
        assert_eq!(verdict(2.5), "2.50× better");
        assert_eq!(verdict(0.5), "2.00× worse");
    }
}
